r"""`taut.wasserstein`: how far apart two data sets are, with a guarantee."""

from collections.abc import Mapping
from typing import Any

from taut.data import Encoding
from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.transport.arguments import check_seed, confidence_of_each
from taut.transport.critic_selection import CRITICS, CriticName, OnProgress
from taut.transport.dataset import open_pair
from taut.transport.feature_scaling import SCALINGS, Scaling
from taut.transport.finite_comparison import FiniteComparison
from taut.transport.mean_bounds import METHODS, Method
from taut.transport.population_comparison import PopulationComparison
from taut.transport.wasserstein_result import WassersteinResult

_SUBJECT = "wasserstein"


def wasserstein(
    x: Any,
    y: Any,
    *,
    confidence: float = 0.95,
    finite: bool = False,
    scaling: Scaling | None = None,
    encoding: Encoding | Mapping[str, Any] | None = None,
    method: Method = "betting",
    critics: tuple[CriticName, ...] = CRITICS,
    num_steps: int = 1000,
    patience: int = 1,
    diameter: float | None = None,
    num_permutations: int = 999,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> WassersteinResult:
    r"""The Wasserstein-1 distance with a lower and an upper bound.

    $$W_1(P, Q) = \min_\pi \mathbb{E}_\pi \|X - Y\| = \max_{f\ \text{1-Lipschitz}}
      \mathbb{E}_P f - \mathbb{E}_Q f$$

    By default `x` and `y` are treated as i.i.d. samples of two populations. Half of each, in 16 dimensions
    and more up to three quarters of large samples, at most 100,000 rows, trains critics, a tenth, at most
    10,000, selects one of them, and the held-out rest gives the lower bound: the difference of mean scores
    less a confidence slack, divided by the critic's *proven* constant. Of samples of up to 5,000 rows every
    row counts twice: a critic from the first 30 % is judged by the second 30 %, which then help to train
    the final one. The upper bound
    is the cost of a coupling of up to 32,768 rows of each sample, whose distance is on average never below
    that of the populations, plus a deviation term. In high dimension it may be of no use, and
    `upper_is_useful` says so. Each bound gets half of `1 - confidence`. Streams are read twice and
    never held: memory grows by some 30 bytes a row, however long the row; time is proportional to
    the rows.

    With `finite=True` the two finite sets themselves are compared: a feasible coupling from above,
    a critic from below, both proven, no statistics. Both are read into memory.

    Data of one column are sorted instead, and held in memory. Finite sets are then measured exactly;
    for populations, half of each sample (at most 100,000 rows) gives the critic without training,
    the other rows the lower bound, and all of them the upper one. `critics`, `num_steps` and
    `patience` have no effect.

    Under `torchrun`, inside `taut.parallel.process_group()`, processes share the batches of the
    fits and the rows to be scored, and all return the same.

    Args:
        x: first data set: an array, tensor, data frame, `taut.data.Table` or `TableStream`, or
            iterable of batches. One that can be iterated again is a stream; it must give the same
            rows each time.
        y: second data set, with the same features.
        confidence: joint confidence level of both bounds.
        finite: compare the two finite sets instead of the populations behind them.
        scaling: scaling of the features: "none" keeps the data's own units; "standard" (mean and
            deviation) and "robust" (median and quartiles) make features comparable, by the training
            half alone. By default "standard" for tables with categories, dates or missing values,
            else "none". Constant columns are kept, and noted.
        encoding: encoding of the columns of two frames, or of streams of text or parquet files: a
            `taut.data.Encoding`, or options of `taut.data.fit_encoding` such as
            `{"drop": ["id"], "categorical": ["month"]}`. By default it is found in all rows of both
            tables, also those that are judged. What is found there is a metric, that is, the kind of
            each column and which are left out (`notes` lists them); the distance of two rows does not
            depend on what else occurs. The bounds are about this metric, as if it had been fixed
            beforehand. An encoding that was fitted beforehand has no such proviso, but where rows have
            categories or gaps that it has not seen there is no upper bound.
        method: confidence bound of the means: "betting", "bernstein" or "hoeffding".
        critics: kinds of critics to try.
        num_steps: training steps of the longest fit; see `patience`.
        patience: number of rounds without progress on the validation rows that end the training;
            rounds have an eighth, a half and all of `num_steps`.
        diameter: upper bound of the diameter of each support, for the upper bound of the distance;
            by default that of the data is assumed, and the bound says so.
        num_permutations: number of permutations behind the p-value.
        seed: random seed, at least 0: equal data and seed give equal results.
        on_progress: called with the name of a stage, the steps done and their total.

    Returns:
        Prints as `0.42, in [0.37, 0.61] at 95 % if no support is wider than the data, p = 0.001`.

    Raises:
        DataError: infinite values, fewer than two rows, columns that do not match; in arrays also
            text and missing values.
        ArgumentError: too few rows for a bound; a stream too long for `finite=True`.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(400, 2, generator=g), torch.rand(400, 2, generator=g) + 1
        >>> result = wasserstein(x, y, num_steps=100)
        >>> result.lower.value <= 2**0.5 <= result.upper.value
        True
    """
    if scaling is not None:
        check_choice(_SUBJECT, "scaling", scaling, SCALINGS)
    check_choice(_SUBJECT, "method", method, METHODS)
    check_count(_SUBJECT, "num_steps", num_steps)
    check_count(_SUBJECT, "patience", patience)
    check_count(_SUBJECT, "num_permutations", num_permutations)
    if diameter is not None:
        check_positive(_SUBJECT, "diameter", diameter)
    check_seed(_SUBJECT, seed)
    confidence_of_each(_SUBJECT, confidence)
    if not critics or set(critics) - set(CRITICS):
        rule = "must be some of 'linear', 'cones', 'network'"
        raise ArgumentError(subject=_SUBJECT, argument="critics", rule=rule, got=f"{critics=!r}")
    pair = open_pair(x, y, encoding)
    if scaling is None:
        pair_encoding = pair.first.encoding
        scaling = "standard" if pair_encoding is not None and pair_encoding.mixed else "none"
    options: dict[str, Any] = dict(
        x=pair.first,
        y=pair.second,
        notes=list(pair.notes),
        scaling=scaling,
        critics=tuple(critics),
        num_steps=num_steps,
        patience=patience,
        seed=int(seed),
        on_progress=on_progress,
    )
    if finite:
        return FiniteComparison(**options).compare()
    comparison = PopulationComparison(**options)
    return comparison.compare(confidence, method, diameter, num_permutations)
