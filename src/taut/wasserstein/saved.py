"""Critics that outlive their data: kept in a file, and asked about later batches."""

import os
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor, nn

from taut.bounds import Bound
from taut.errors import DamagedFileError, DataError, check_choice
from taut.export import open_file, save
from taut.norms import L2
from taut.wasserstein.bounding import bound_distance_below
from taut.wasserstein.confidence import METHODS, Method, check_seed, confidence_of_each
from taut.wasserstein.scaling import FeatureScaling
from taut.wasserstein.sides import Side, batches_of, open_side

__all__ = ["SavedCritic", "load_critic"]

_SUBJECT = "SavedCritic.lower_bounds"
_MOST_SCORES = 100_000
_CHUNK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class SavedCritic:
    r"""A critic with all it needs to judge rows that came after it.

    Attributes:
        critic: the function, on scaled features, in evaluation mode and float64.
        kind: which kind of critic it is.
        lipschitz: its proven constant.
        scaling: how features are scaled before it sees them.
        columns: names of the features, where the data had some.
        image_shape: the shape of one row, where rows are images.
        limits: the scores are clamped to these for bounds; known before the held-out rows were.
        scores: of the rows of x and of y that carry bounds, at most 100,000 of each, drawn
            uniformly: those held out (`population`), or any.
        means: the mean score of each side, over all of those rows.
        population: whether x and y stand for populations, or for themselves alone.
    """

    critic: nn.Module = field(repr=False)
    kind: str
    lipschitz: Bound
    scaling: FeatureScaling = field(repr=False)
    columns: tuple[str, ...] | None = field(repr=False)
    image_shape: tuple[int, ...] | None
    limits: tuple[float, float]
    scores: tuple[Tensor, Tensor] = field(repr=False)
    means: tuple[float, float]
    population: bool

    @property
    def dim(self) -> int:
        """How many features a row has."""
        return len(self.scaling.shift)

    def score(self, data: Any) -> Tensor:
        """The critic's value for every row: high where it looks like x, low where like y.

        Args:
            data: whatever `taut.wasserstein` takes; streams are read some rows at a time. Named
                columns are put in the order of the critic.

        Returns:
            `(n,)`, float64.
        """
        return self._score(data)[0]

    def _score(self, data: Any) -> tuple[Tensor, float]:
        """The scores, and the length of the longest row."""
        scores, longest = [], 0.0
        for batch in batches_of(self.match(open_side(data, "data", least=1))):
            points = self.scaling(batch)
            scores.append(score_points(self.critic, points))
            lengths = torch.linalg.vector_norm(points, dim=-1)
            longest = max(longest, lengths.max().item() if len(lengths) else 0.0)
        return torch.cat(scores), longest

    def match(self, side: Side) -> Side:
        """The same sample with the columns of the critic in its order.

        Raises:
            DataError: it has other columns.
        """
        if self.columns and side.columns and self.columns != side.columns:
            if missing := [name for name in self.columns if name not in side.columns]:
                raise DataError(
                    f"{side.source}: must have the columns that the critic was made with; "
                    f"it lacks {', '.join(map(repr, missing[:8]))}."
                )
            return side.select(self.columns)
        if side.dim != self.dim:
            raise DataError(
                f"{side.source}: must have {self.dim} columns, as the critic was made with; "
                f"got {side.dim}."
            )
        return side

    def lower_bounds(
        self,
        data: Any,
        confidence: float = 0.95,
        method: Method = "betting",
        *,
        seed: int = 0,
    ) -> tuple[Bound, Bound]:
        r"""Lower bounds of $W_1$ between what `data` was drawn from and x, and between it and y.

        The critic is older than the rows, so all of them are held-out. The distance is symmetric
        and the critic may be turned over, so each bound takes the better of two directions, at half
        of the error probability each. With populations the old side is its held-out scores; without
        it is the set itself, whose mean score is known.

        Args:
            data: independent draws, whatever `score` takes.
            confidence: of each of the two bounds.
            method: the confidence bound of means: "betting", "bernstein" or "hoeffding".
            seed: of the shuffles.
        """
        return self.judge(data, confidence, method, seed=seed)[1:]

    def judge(
        self,
        data: Any,
        confidence: float = 0.95,
        method: Method = "betting",
        *,
        seed: int = 0,
    ) -> tuple[Tensor, Bound, Bound]:
        """The scores of `score` and the bounds of `lower_bounds`, from one pass over the rows."""
        each = confidence_of_each(_SUBJECT, confidence)
        check_choice(_SUBJECT, "method", method, METHODS)
        check_seed(_SUBJECT, seed)
        scores, longest = self._score(data)
        low, high = self.limits
        # The rows behind the old scores are not at hand: their length is taken from the limits.
        rounding = 1e-9 * (high - low + max(abs(low), abs(high), longest))
        values = [self._bound(scores, i, each, method, int(seed), rounding) for i in (0, 1)]
        text = f"{self.kind} critic, {method}, either direction"
        from_x, from_y = (Bound(value, L2, "lower", text, confidence) for value in values)
        return scores, from_x, from_y

    def _bound(
        self, scores: Tensor, side: int, each: float, method: Method, seed: int, rounding: float
    ) -> float:
        """The better of two directions, each at the confidence `each`."""
        old = self.scores[side]
        if not self.population:
            # A set that stands for itself is a law whose every draw has the mean score.
            old = old.new_full((max(len(scores), 1),), self.means[side])
        generator = Generator().manual_seed(seed)
        found = [
            bound_distance_below(
                *pair,
                self.limits,
                self.lipschitz.value,
                confidence=each,
                method=method,
                generator=generator,
                rounding=rounding,
            ).value
            for pair in ((old, scores), (scores, old))
        ]
        return max(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all of it to one file in the format of `taut.save`; `load_critic` reads it.

        `taut.load` gives the network alone.
        """
        facts = {
            "critic": {
                "kind": self.kind,
                "scaling": self.scaling.method,
                "columns": None if self.columns is None else list(self.columns),
                "image_shape": None if self.image_shape is None else list(self.image_shape),
                "limits": [float(limit) for limit in self.limits],
                "means": [float(mean) for mean in self.means],
                "population": self.population,
            }
        }
        attached = {
            "shift": self.scaling.shift,
            "scale": self.scaling.scale,
            "x_scores": self.scores[0],
            "y_scores": self.scores[1],
        }
        save(self.critic, path, norm="l2", input_shape=[self.dim], facts=facts, attached=attached)


@torch.no_grad()
def score_points(critic: nn.Module, points: Tensor) -> Tensor:
    """The critic at `(n, dim)` scaled points: `(n,)`, in float64."""
    return torch.cat([critic(part).flatten() for part in points.split(_CHUNK_ROWS)])


def thin(scores: Tensor, generator: Generator) -> Tensor:
    """At most 100,000 of the scores, drawn uniformly without looking at them."""
    if len(scores) <= _MOST_SCORES:
        return scores
    return scores[torch.randperm(len(scores), generator=generator)[:_MOST_SCORES]]


def load_critic(path: str | os.PathLike[str]) -> SavedCritic:
    """Reads what `WassersteinResult.save` wrote, believing nothing (see `taut.load`).

    The constant is proven anew; what the file says about scores and scaling is covered by its
    checksum and must fit together, but is its writer's word.

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
    found = open_file(path)
    try:
        facts = found.facts["critic"]
        shift, scale = found.attached["shift"], found.attached["scale"]
        scores = found.attached["x_scores"], found.attached["y_scores"]
        low, high = map(_number, facts["limits"])
        first, second = map(_number, facts["means"])
        columns, shape = facts["columns"], facts["image_shape"]
        dim = len(shift)
        _check(found.input_shape == (dim,), "its network does not take its columns")
        _check(shift.shape == scale.shape == (dim,), "its scaling has no entry for every column")
        _check(bool((scale > 0).all()), "its scaling divides by zero or less")
        _check(low <= high, "its limits are in the wrong order")
        _check(all(s.ndim == 1 and len(s) > 0 for s in scores), "its scores are no lists")
        same = {shift.dtype, scale.dtype, *(s.dtype for s in scores)} == {torch.float64}
        _check(same, "its numbers are not in float64")
        _check(columns is None or _all(columns, str, dim), "its columns are not names")
        _check(shape is None or _all(shape, int), "its image shape is none")
        _check(type(facts["population"]) is bool, "it does not say whether it is of populations")
        _check(facts["scaling"] in ("none", "standard", "robust"), "its scaling is unknown")
        return SavedCritic(
            critic=found.model,
            kind=str(facts["kind"])[:80],
            lipschitz=found.bound,
            scaling=FeatureScaling(facts["scaling"], shift, scale),
            columns=None if columns is None else tuple(columns),
            image_shape=None if shape is None else tuple(shape),
            limits=(low, high),
            scores=scores,
            means=(first, second),
            population=facts["population"],
        )
    except (LookupError, TypeError, ValueError) as error:
        name = os.fspath(path)
        said = error if isinstance(error, DamagedFileError) else "a part is missing"
        raise DamagedFileError(
            f"load_critic: {os.path.basename(name)}: holds no critic with scores: {said}. "
            "Write it with WassersteinResult.save."
        ) from error


def _check(fits: bool, otherwise: str) -> None:
    if not fits:
        raise DamagedFileError(otherwise)


def _number(value: Any) -> float:
    _check(type(value) is float and abs(value) < float("inf"), "a number is not finite")
    return value


def _all(values: Any, kind: type, count: int | None = None) -> bool:
    fits = isinstance(values, list) and all(type(value) is kind for value in values)
    return fits and (count is None or len(values) == count)
