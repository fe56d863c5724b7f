r"""Drift monitors: one reference, a sequence of batches, and one false-alarm rate for all of them."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

from taut.data import Encoding, LoadedSource, describe_columns, fit_encoding, read_source
from taut.errors import ArgumentError, DataError, check_choice, check_count, check_nonnegative
from taut.transport.arguments import check_seed
from taut.transport.drift_evidence import (
    bound_rounding,
    log_evidence,
    log_reference,
    log_wealth,
    make_nodes,
    new_wealth,
)
from taut.transport.drift_scores import DriftScores, fit_scores
from taut.transport.feature_scaling import SCALINGS, FeatureScaling, Scaling, fit_scaling
from taut.transport.independence_checks import find_running
from taut.transport.input_data import (
    columns_of,
    iterate_batches,
    load_rows,
    match_columns,
    open_dataset,
)

_SUBJECT = "fit_monitor"
_MIN_ROWS = 4
_MOST_TRAINING = 2**14
_MOST_HELD_OUT = 2**15
_MOST_CHANGES = 5
_LEAST_INFORMATION = 20.0  # of a batch that new rows will not repeat by chance: exp(-20) is 2e-9
_LARGEST = 700.0  # logarithm of the largest evidence that is reported


@dataclass(frozen=True)
class Change:
    """One score of a monitor that has risen.

    Attributes:
        what: what the rise means, such as "age higher".
        evidence: evidence of this score alone; the mean over all scores is that of the batch.
        difference: rise of the mean from the reference to the batch, in scaled units, with values clamped
            to the range of the reference; negative if this batch went the other way than earlier ones.
    """

    what: str
    evidence: float
    difference: float


@dataclass(frozen=True)
class MonitoredBatch:
    """The state of a monitor after a batch.

    Attributes:
        name: name of the batch.
        rows: number of its rows.
        evidence: evidence against "no drift so far": usually below 1 without drift; an alarm is raised at
            1 divided by the false-alarm rate.
        p_value: anytime-valid p-value of "no drift so far": 1 divided by the largest evidence so far.
        alarm: whether this batch or an earlier one has shown drift.
        changes: the scores with the most evidence, the first few.
        digest: checksum of the rows.
    """

    name: str
    rows: int
    evidence: float
    p_value: float
    alarm: bool
    changes: tuple[Change, ...]
    digest: str = field(repr=False)


@dataclass(eq=False)
class Monitor:
    r"""A fitted reference, and the evidence of drift from all batches so far.

    Under the hypothesis that no batch has drifted, the probability of an alarm at any time, over however
    many batches, is at most `false_alarm_rate`. The hypothesis: the reference's rows are i.i.d. with law P,
    and each row of a batch has, given all rows before it, a law within a Wasserstein-1 distance of
    `tolerance` from P, in scaled units; with a tolerance of 0, the law P itself. So an alarm shows that
    some batch is farther than `tolerance` from the reference.

    One random half of the reference fixes the encoding, the scaling and the scores; the other half, at most
    32,768 rows, estimates their means. Each score is 1-Lipschitz, so its mean differs by at most the
    distance of the laws. `taut.transport.drift_evidence` states and proves the theorem.

    With a `window`, the rows of every `window` batches become the reference of the next ones, with their
    scaling and scores; earlier batches are forgotten, so that slow drift is tolerated and sudden drift is
    found. The hypothesis is then that no batch has drifted from its own reference. The evidence of the
    $k$-th reference is divided by $k(k + 1)$.

    *Proof.* A reference is fixed before its batches are seen, so by the theorem its evidence ever reaches
    $k(k + 1)/\alpha$ with a probability of at most $\alpha/k(k + 1)$; these add up to $\alpha$. $\square$

    Attributes:
        scores: the monitored scores.
        scaling: scaling of the features.
        columns: names of the features, where the reference has some.
        encoding: how columns became features, where the reference is a table of columns.
        false_alarm_rate: probability of a false alarm, over the whole run.
        tolerance: distance from the reference that is no drift, in scaled units.
        rows: number of rows of the reference.
        batches: the state after each batch.
        window: number of batches after which they become the reference; None keeps the first.
        moves: number of times that the reference was replaced.
        start: number of batches before the current reference began.
        recent: encoded rows of the batches since then; without a window none.
        notes: warnings about the columns of the reference.
    """

    scores: DriftScores = field(repr=False)
    scaling: FeatureScaling = field(repr=False)
    columns: tuple[str, ...] | None = field(repr=False)
    encoding: Encoding | None = field(repr=False)
    false_alarm_rate: float
    tolerance: float
    rows: int
    nodes: Tensor = field(repr=False)
    reference: Tensor = field(repr=False)
    means: Tensor = field(repr=False)
    wealth: Tensor = field(repr=False)
    rounding: float = field(repr=False)
    batches: list[MonitoredBatch] = field(default_factory=list, repr=False)
    window: int | None = None
    moves: int = field(default=0, repr=False)
    start: int = field(default=0, repr=False)
    recent: Tensor = field(default_factory=lambda: torch.zeros(0, 0).double(), repr=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.recent.numel() == 0:
            self.recent = torch.zeros(0, self.dim, dtype=torch.float64)

    @property
    def dim(self) -> int:
        """Number of features of a row."""
        return len(self.scaling.shift)

    @property
    def alarm(self) -> bool:
        """Whether the batches so far have shown drift."""
        return bool(self.batches) and self.batches[-1].alarm

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return list(self.columns or (f"column {j}" for j in range(self.dim)))

    def update(self, data: Any, name: str = "") -> MonitoredBatch:
        """Updates the evidence with the next batch.

        Args:
            data: new rows, each seen once: any data set that `taut.wasserstein` takes, with the columns
                of the reference, which are matched by name.
            name: name of the batch; by default its number.

        Raises:
            DataError: other columns, or the rows of an earlier batch, unless they are so few that new
                ones may be the same by chance.
        """
        rows = self._read(data)
        points = self.scaling(rows)
        digest = hashlib.sha256(rows.numpy().tobytes()).hexdigest()
        number = len(self.batches) + 1
        names_by_digest = {batch.digest: batch.name for batch in self.batches}
        if digest in names_by_digest and not _may_recur(rows):
            rule = "every batch must hold new rows, or they would count twice"
            got = f"the rows of batch {names_by_digest[digest]!r} again"
            raise DataError(name or f"batch {number}", rule=rule, got=got)
        draws = self.scores(points)
        past, shared = number - self.start, 1
        if self.window is not None:
            shared = (self.moves + 1) * (self.moves + 2)
            self.recent = torch.cat([self.recent, rows])[-_MOST_TRAINING - _MOST_HELD_OUT :]
        # The rounding of scores matters only with a tolerance.
        width = self.scores.widths.repeat(2)
        tolerance = self.tolerance / width * (1 + 1e-9) + 1e-9 * (self.tolerance > 0)
        self.wealth = log_wealth(self.wealth, draws, self.nodes + tolerance[:, None], past)
        self.rounding += bound_rounding(len(points))
        each = log_evidence(self.reference, self.wealth, past) - self.rounding
        total = min(_LARGEST, each.logsumexp(0).item() - math.log(len(each) * shared))
        before = self.batches[-1].p_value if self.batches else 1.0
        p_value = min(before, math.exp(-total))
        difference = (draws.mean(0) - self.means) * width
        result = MonitoredBatch(
            name=name or str(number),
            rows=len(points),
            evidence=math.exp(total),
            p_value=p_value,
            alarm=p_value <= self.false_alarm_rate,
            changes=self._changes(each, difference),
            digest=digest,
        )
        self.batches.append(result)
        if self.window is not None and past >= self.window and not result.alarm:
            self._move_on()
        return result

    def _move_on(self) -> None:
        """Replaces the reference by the rows of the last batches, if there are enough of them."""
        if len(self.recent) < _MIN_ROWS:
            return
        self.moves, self.start, self.rows = self.moves + 1, len(self.batches), len(self.recent)
        generator = Generator().manual_seed(self.moves)
        train, held_out = (self.recent[half] for half in _halves(self.rows, generator))
        names, method = self.columns or (), self.scaling.method
        vars(self).update(_fit_parts(train, held_out, method, names, self.encoding, generator))
        self.recent = self.recent[:0]

    def _changes(self, each: Tensor, difference: Tensor) -> tuple[Change, ...]:
        encoding = self.encoding
        counted = [False] * self.dim if encoding is None else encoding.fixed.tolist()
        names = self.scores.names(self.features, counted)
        order = each.argsort(descending=True, stable=True).tolist()
        first = [k for k in order if names[k]][:_MOST_CHANGES]
        evidence = each.clamp(max=_LARGEST).exp().tolist()
        return tuple(Change(names[k], evidence[k], difference[k].item()) for k in first)

    def _read(self, data: Any) -> Tensor:
        opened = open_dataset(data, "batch", 1, self.encoding)
        matched = match_columns(opened, self.columns, self.dim, "the monitor was fitted on")
        return torch.cat(list(iterate_batches(matched))).double()


def fit_monitor(
    reference: Any,
    *,
    false_alarm_rate: float = 0.05,
    tolerance: float = 0.0,
    scaling: Scaling = "standard",
    encoding: Mapping[str, Any] | None = None,
    window: int | None = None,
    seed: int = 0,
) -> Monitor:
    """Fits a monitor to a reference, for the batches that follow; see `Monitor` for its guarantee.

    Args:
        reference: i.i.d. rows, any data set that `taut.wasserstein` takes; it is held in memory.
        false_alarm_rate: probability of a false alarm, over the whole run; inside (0, 1).
        tolerance: Wasserstein distance from the reference that is no drift, in scaled units.
        scaling: scaling of the features: "standard" (mean and deviation), "robust" (median and
            quartiles) or "none".
        encoding: options of `taut.data.fit_encoding`, for tables of columns.
        window: number of batches after which they replace the reference, so that slow drift is tolerated;
            None keeps the first reference.
        seed: random seed of the split.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> monitor = fit_monitor(torch.randn(1000, 2, generator=g))
        >>> monitor.update(torch.randn(200, 2, generator=g)).alarm
        False
        >>> shifted = torch.randn(200, 2, generator=g) + torch.tensor([1.0, 0.0])
        >>> batch = monitor.update(shifted)
        >>> batch.alarm, batch.changes[0].what
        (True, 'column 0 higher')
    """
    if not 0 < false_alarm_rate < 1:
        got = f"false_alarm_rate={false_alarm_rate!r}"
        raise ArgumentError(_SUBJECT, "false_alarm_rate", "must lie strictly between 0 and 1", got)
    check_nonnegative(_SUBJECT, "tolerance", tolerance)
    check_choice(_SUBJECT, "scaling", scaling, SCALINGS)
    check_seed(_SUBJECT, seed)
    if window is not None:
        check_count(_SUBJECT, "window", window)
    generator = Generator().manual_seed(int(seed))
    train, held_out, order, columns, fitted_encoding = _split(reference, encoding, generator)
    return Monitor(
        **_fit_parts(train, held_out, scaling, columns or (), fitted_encoding, generator),
        columns=columns,
        encoding=fitted_encoding,
        false_alarm_rate=float(false_alarm_rate),
        tolerance=float(tolerance),
        rows=len(train) + len(held_out),
        window=window,
        notes=_note_running(torch.cat([train, held_out])[order.argsort()], columns or ()),
    )


def _may_recur(rows: Tensor) -> bool:
    """Whether new rows may be the same, in the same order, by chance, as a few categories may."""
    counts = torch.unique(rows.nan_to_num(torch.inf), dim=0, return_counts=True)[1]
    return float(torch.special.entr(counts / len(rows)).sum()) * len(rows) < _LEAST_INFORMATION


def _fit_parts(
    train: Tensor,
    held_out: Tensor,
    scaling: Scaling,
    columns: Sequence[str],
    encoding: Encoding | None,
    generator: Generator,
) -> dict[str, Any]:
    """The parts of a monitor that depend on its reference: scores from `train`, means from `held_out`."""
    fixed = None if encoding is None else torch.from_numpy(encoding.fixed)
    scale, _ = fit_scaling(scaling, train, columns, fixed)
    scores = fit_scores(scale(train), generator)
    draws = scores(scale(held_out))
    nodes = make_nodes(draws)
    return {
        "scores": scores,
        "scaling": scale,
        "nodes": nodes,
        "reference": log_reference(draws, nodes),
        "means": draws.mean(0),
        "wealth": new_wealth(nodes),
        "rounding": bound_rounding(len(draws)),
    }


def _note_running(points: Tensor, columns: Sequence[str]) -> tuple[str, ...]:
    """A note on columns that number or sort the rows."""
    if not (positions := find_running(points)):
        return ()
    which = describe_columns(columns, positions)
    return (f"running numbers or times, which later batches will exceed: {which}; leave them out",)


def _split(
    reference: Any, options: Mapping[str, Any] | None, generator: Generator
) -> tuple[Tensor, Tensor, Tensor, tuple[str, ...] | None, Encoding | None]:
    """Splits the reference into training and held-out rows.

    Also returns the positions of both, the names of the features and their encoding. The encoding is
    fitted to the training rows alone: the values of the held-out ones must not decide how these are scored.
    """
    source = columns_of(reference, "reference")
    if source is None:
        if options:
            rule = "needs a table with columns: a frame, or a text or parquet file"
            raise ArgumentError(_SUBJECT, "encoding", rule)
        opened = open_dataset(reference, "reference")
        rows = load_rows(opened, _SUBJECT)
        first, second = drawn = _halves(len(rows), generator)
        return rows[first], rows[second], torch.cat(drawn), opened.columns or None, None
    cells = LoadedSource(source)
    drawn = _halves(cells.rows, generator)
    halves = [cells.take(half.numpy()) for half in drawn]
    encoding = fit_encoding(halves[0], **options or {})
    # Missing values that first occur later must be detected.
    encoding = replace(encoding, columns=tuple(replace(c, missing=True) for c in encoding.columns))
    selected = encoding.select(cells.names, cells.subject)
    train, held_out = (
        torch.from_numpy(read_source(half.select(selected), None, encoding, 1).values)
        for half in halves
    )
    return train, held_out, torch.cat(drawn), encoding.features, encoding


def _halves(rows: int, generator: Generator) -> tuple[Tensor, Tensor]:
    if rows < _MIN_ROWS:
        rule = f"a reference must have at least {_MIN_ROWS} rows"
        raise ArgumentError(_SUBJECT, rule=rule, got=str(rows))
    order = torch.randperm(rows, generator=generator)
    first, second = order.tensor_split([min(rows // 2, _MOST_TRAINING)])
    return first, second[:_MOST_HELD_OUT]
