"""Critics that outlive their data: saved to a file, and used to evaluate later batches."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from taut.bounds import Bound, Hypotheses
from taut.certificates import BoundedEvaluation
from taut.data import Encoding
from taut.errors import DamagedFileError, check_choice
from taut.export import open_file, save
from taut.norms import L2
from taut.transport.arguments import check_seed, confidence_of_each
from taut.transport.critics import name_critic, score_points
from taut.transport.distance_bounds import Scores, Stage, bound_population_lower
from taut.transport.feature_scaling import SCALINGS, FeatureScaling
from taut.transport.input_data import (
    Dataset,
    find_unseen,
    iterate_batches,
    match_columns,
    open_dataset,
)
from taut.transport.mean_bounds import METHODS, Method

_SUBJECT = "SavedCritic.lower_bounds"
_TENSORS = ("shift", "scale", "x_scores", "y_scores", "x_errors", "y_errors")


@dataclass(frozen=True, eq=False)
class SavedCritic:
    r"""A trained critic with everything needed to evaluate later rows.

    Attributes:
        critic: the function, on scaled features, in evaluation mode and float64.
        kind: kind of the critic.
        lipschitz: proven constant of the critic.
        scaling: scaling of the features before the critic sees them.
        columns: names of the features, if the data had names.
        encoding: how the columns of a table became features, where there is one.
        image_shape: shape of one row, where rows are images.
        limits: range to which scores are clamped for bounds; fixed before the held-out rows were
            seen.
        scores: scores of the rows of x and of y behind the bounds, at most 100,000 of each, drawn
            uniformly: of the held-out rows, or of any for finite sets.
        errors: proven bounds of the rounding errors of these scores.
        means: proven bounds of the mean exact score of each side, over all of its rows.
        finite: whether x and y are finite sets or samples of populations.
    """

    critic: nn.Module = field(repr=False)
    kind: str
    lipschitz: Bound
    scaling: FeatureScaling = field(repr=False)
    columns: tuple[str, ...] | None = field(repr=False)
    image_shape: tuple[int, ...] | None
    limits: tuple[float, float]
    scores: tuple[Tensor, Tensor] = field(repr=False)
    errors: tuple[Tensor, Tensor] = field(repr=False)
    means: tuple[tuple[float, float], tuple[float, float]]
    finite: bool
    encoding: Encoding | None = field(default=None, repr=False, kw_only=True)

    @property
    def dim(self) -> int:
        """Number of features of a row."""
        return len(self.scaling.shift)

    def score(self, data: Any) -> Tensor:
        """The critic's value for every row: high where it looks like x, low where like y.

        Args:
            data: any data set that `taut.wasserstein` takes; streams are read batch by batch. Named
                columns are put into the order of the critic.

        Returns:
            `(n,)`, float64.
        """
        batches = self._batches(data)
        return torch.cat([score_points(self.critic, self.scaling(rows)) for rows in batches])

    def _batches(self, data: Any) -> Iterator[Tensor]:
        return iterate_batches(self.match(open_dataset(data, "data", 1, self.encoding)))

    def match(self, data: Dataset) -> Dataset:
        """Puts the columns of a sample into the order of the critic.

        Raises:
            DataError: it has other columns.
        """
        return match_columns(data, self.columns, self.dim, "the critic was trained on")

    def lower_bounds(
        self, data: Any, confidence: float = 0.95, method: Method = "betting", *, seed: int = 0
    ) -> tuple[Bound, Bound]:
        r"""Lower bounds of $W_1$ from the population of `data` to x, and to y.

        The critic is older than the rows, so all of them are held out. The distance is symmetric
        and the critic may be negated, so each bound takes the better of two directions, at half
        of the error probability each. The old side is represented by its held-out scores; a finite
        set by its mean score, which is known.

        Categories and gaps that the encoding has not seen are mapped nearer than they are (see
        `taut.data.encoding`). The bounds hold, but may be too small, and their `hypotheses` say so.

        Args:
            data: i.i.d. rows, any data set that `score` takes.
            confidence: confidence level of each of the two bounds.
            method: confidence bound of the means: "betting", "bernstein" or "hoeffding".
            seed: random seed of the shuffles.
        """
        return self.evaluate(data, confidence, method, seed=seed)[1:]

    def evaluate(
        self, data: Any, confidence: float = 0.95, method: Method = "betting", *, seed: int = 0
    ) -> tuple[Tensor, Bound, Bound]:
        """The scores of `score` and the bounds of `lower_bounds`, from one pass over the rows."""
        each = confidence_of_each(_SUBJECT, confidence)
        check_choice(_SUBJECT, "method", method, METHODS)
        check_seed(_SUBJECT, seed)
        evaluate = BoundedEvaluation(self.critic, self.dim)
        parts, unseen = [], {}
        for rows in self._batches(data):
            unseen |= dict.fromkeys(find_unseen(self.encoding, rows))
            parts.append(evaluate(self.scaling(rows)))
        new = Scores(*(torch.cat(part) for part in zip(*parts, strict=True)))
        values = [self._bound(new, i, each, method, int(seed)) for i in (0, 1)]
        text = f"{name_critic(self.kind)}, {method}, either direction"
        where = ", ".join(map(repr, unseen))
        note = f"the bounds may be too small: unseen categories or gaps in {where} "
        notes = Hypotheses((f"{note}count as nearer than they are",) if unseen else ())
        from_x, from_y = (
            Bound(value, L2, "lower", text, confidence, hypotheses=notes) for value in values
        )
        return new.values, from_x, from_y

    def _bound(self, new: Scores, side: int, each: float, method: Method, seed: int) -> float:
        """The larger bound of the two directions, each at the confidence `each`."""
        old = Scores(self.scores[side], self.errors[side])
        if self.finite:
            # The mean score of a finite set is known: every draw has it, up to its error.
            low, high = self.means[side]
            middle = (low + high) / 2
            error = math.nextafter(max(high - middle, middle - low), math.inf)
            like = torch.ones_like(new.values)
            old = Scores(middle * like, error * like)
        generator = Generator().manual_seed(seed)
        pairs = ((old, new), (new, old))
        stages = (Stage(*pair, self.limits, self.lipschitz.value) for pair in pairs)
        bounds = (bound_population_lower([s], each, method, generator) for s in stages)
        return max(bound.value for bound in bounds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one file in the format of `taut.save`; `load_critic` reads it.

        `taut.load` reads the network alone.
        """
        stated = {
            "kind": self.kind,
            "scaling": self.scaling.method,
            "columns": None if self.columns is None else list(self.columns),
            "image_shape": None if self.image_shape is None else list(self.image_shape),
            "limits": [float(limit) for limit in self.limits],
            "means": [[float(end) for end in mean] for mean in self.means],
            "finite": self.finite,
            "encoding": None if self.encoding is None else self.encoding.to_json(),
        }
        entries = (self.scaling.shift, self.scaling.scale, *self.scores, *self.errors)
        tensors = dict(zip(_TENSORS, entries, strict=True))
        stored: Any = {"metadata": {"critic": stated}, "extra_tensors": tensors}
        save(self.critic, path, norm="l2", input_shape=[self.dim], **stored)


def load_critic(path: str | os.PathLike[str]) -> SavedCritic:
    """Reads what `WassersteinResult.save` wrote, with the checks of `taut.load`.

    The constant is proven again; scores and scaling are covered by the checksum and must be
    consistent, but otherwise are as the writer stated them.

    Raises:
        DamagedFileError: the file is truncated, altered, or holds no critic.

    Example:
        >>> import tempfile, pathlib, taut
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "critic.safetensors"
        >>> x = torch.linspace(0, 1, 50)
        >>> taut.wasserstein(x, x + 3, num_steps=20).save(path)
        >>> from_x, from_y = load_critic(path).lower_bounds(x + 3)
        >>> from_x.value > 1, from_y.value
        (True, 0.0)
    """
    file = open_file(path)
    try:
        stated = file.metadata["critic"]
        tensors = [file.extra_tensors[name] for name in _TENSORS]
        shift, scale, *scores, x_errors, y_errors = tensors
        errors = (x_errors, y_errors)
        dim, columns, shape = len(shift), stated["columns"], stated["image_shape"]
        low, high = map(_number, stated["limits"])
        means = [(_number(least), _number(most)) for least, most in stated["means"]]
        encoding = stated.get("encoding")
        encoding = None if encoding is None else Encoding.from_json(encoding)
        fits = all(e.shape == s.shape for e, s in zip(errors, scores, strict=True))
        for holds, otherwise in (
            (len(means) == 2 and all(a <= b for a, b in means), "its means are not intervals"),
            (file.input_shape == (dim,), "its network has another number of inputs"),
            (shift.shape == scale.shape == (dim,), "its scaling has no entry for every column"),
            (bool((scale > 0).all()), "its scaling divides by zero or less"),
            (low <= high, "its limits are in the wrong order"),
            (all(s.ndim == 1 and len(s) > 0 for s in scores), "its scores are not one-dimensional"),
            (
                fits and all(bool((e >= 0).all()) for e in errors),
                "its errors do not match its scores",
            ),
            (
                {tensor.dtype for tensor in tensors} == {torch.float64},
                "its numbers are not float64",
            ),
            (columns is None or _all(columns, str, dim), "its columns are not names"),
            (shape is None or _all(shape, int), "its image shape is invalid"),
            (type(stated["finite"]) is bool, "it does not say whether its sets are finite"),
            (stated["scaling"] in SCALINGS, "its scaling is unknown"),
            (encoding is None or len(encoding.features) == dim, "its encoding has other features"),
        ):
            _check(holds, otherwise)
        return SavedCritic(
            critic=file.model,
            kind=str(stated["kind"])[:80],
            lipschitz=file.bound,
            scaling=FeatureScaling(stated["scaling"], shift, scale),
            columns=None if columns is None else tuple(columns),
            image_shape=None if shape is None else tuple(shape),
            limits=(low, high),
            scores=(scores[0], scores[1]),
            errors=errors,
            means=(means[0], means[1]),
            finite=stated["finite"],
            encoding=encoding,
        )
    except (LookupError, TypeError, ValueError) as error:
        reason = error.rule if isinstance(error, DamagedFileError) else "a part is missing"
        rule, got = "must hold a critic with its scores", f"none: {reason}"
        remedy = "Write it with WassersteinResult.save."
        raise DamagedFileError(
            f"load_critic: {os.path.basename(os.fspath(path))}", rule=rule, got=got, remedy=remedy
        ) from error


def _check(fits: bool, otherwise: str) -> None:
    if not fits:
        raise DamagedFileError(rule=otherwise)


def _number(value: Any) -> float:
    _check(type(value) is float and abs(value) < float("inf"), "a number is not finite")
    return value


def _all(values: Any, kind: type, count: int | None = None) -> bool:
    fits = isinstance(values, list) and all(type(value) is kind for value in values)
    return fits and (count is None or len(values) == count)
