"""The result of `taut.wasserstein`."""

import os
from dataclasses import dataclass, field, fields

import torch
from torch import Generator

from taut.bounds import Bound, Estimate, Interval, format_bound, format_number
from taut.transport.saved_critic import SavedCritic

_MOST_SCORES = 100_000


@dataclass(frozen=True, eq=False, kw_only=True)
class WassersteinResult(SavedCritic):
    """The distance between two finite sets, or between the populations behind two samples.

    It includes the critic behind it, with the attributes and methods of `SavedCritic`; its
    `scores` and `errors` are those of all held-out rows, or of all rows for finite sets, in their
    order.

    Attributes:
        estimate: value of the best critic on held-out rows, or 0 if it is negative; for finite sets,
            the middle of the proven interval. It may be above or below the true distance; if there
            are `unseen` values, it may be too low.
        lower: lower bound on the distance, with its confidence level.
        upper: upper bound on the distance, with its confidence level; infinite if there are `unseen`
            values.
        upper_is_useful: whether the upper bound is informative: at most three times the estimate,
            or at most half of the mean distance between a row of x and a row of y; for finite sets,
            whether it is finite.
        bootstrap: ends of the bootstrap interval of the estimate, for this critic: an estimate itself,
            not a bound on the distance; None for finite sets.
        p_value: p-value of the hypothesis that both samples come from the same distribution, by exact
            permutation tests of all rows and of held-out scores; None for finite sets.
        history: dual value of the selected critic at each training step.
        rows: number of rows of x and of y.
        diameter: stated diameter of the populations; None if it was taken from the data.
        notes: assumptions about the data and changes made to them; for populations, first the
            assumption of the upper bound about their width.
        unseen: columns with categories or missing values that a given encoding has not seen. They are
            mapped closer to the others than they are, so there is no upper bound (see
            `taut.data.encoding`).
    """

    estimate: Estimate
    lower: Bound
    upper: Bound
    upper_is_useful: bool = field(default=True, repr=False)
    bootstrap: tuple[float, float] | None = field(default=None, repr=False)
    p_value: float | None
    history: tuple[float, ...] = field(repr=False)
    rows: tuple[int, int]
    diameter: float | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def interval(self) -> Interval:
        """Both bounds together."""
        return Interval(self.lower, self.upper)

    @property
    def confidence(self) -> float:
        """Joint confidence level of both bounds."""
        return self.interval.confidence

    @property
    def gap(self) -> float:
        """Distance between the two bounds."""
        return self.upper.value - self.lower.value

    @property
    def saved(self) -> SavedCritic:
        """The part that `save` writes: the critic with at most 100,000 random scores per side."""
        generator = Generator().manual_seed(0)
        shuffles = (torch.randperm(len(side), generator=generator) for side in self.scores)
        indices = [shuffled[:_MOST_SCORES].sort().values for shuffled in shuffles]
        parts = {part.name: getattr(self, part.name) for part in fields(SavedCritic)}
        for name in ("scores", "errors"):
            parts[name] = tuple(side[at] for side, at in zip(parts[name], indices, strict=True))
        return SavedCritic(**parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the critic with what it needs to evaluate later rows; `load_critic` reads it."""
        self.saved.save(path)

    @property
    def assumption(self) -> str:
        """The assumption of the upper bound about the populations, as a phrase; empty for finite sets."""
        width = "the data" if self.diameter is None else f"{self.diameter:g}"
        return "" if self.finite else f"if neither population is wider than {width}"

    def __str__(self) -> str:
        losses = "" if self.encoding is None else self.encoding.losses
        return f"{self._summary()}; {losses}" if losses else self._summary()

    def _summary(self) -> str:
        low = format_bound(self.lower.value, "lower")
        high = format_bound(self.upper.value, "upper")
        sure = "proven" if self.finite else f"at {100 * self.lower.confidence:g} %"
        tested = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        if self.unseen:
            names = ", ".join(map(repr, self.unseen))
            bounds = f"lower estimate {format_number(self.estimate.value)}, at least {low} {sure}"
            return f"{bounds}, no upper bound: unseen values in {names}{tested}"
        between = f"in [{low}, {high}] "
        between += "proven" if self.finite else f"at {100 * self.confidence:g} % {self.assumption}"
        if not self.upper_is_useful:
            between = f"at least {low} {sure}, no useful upper bound"
        return f"{format_number(self.estimate.value)}, {between}{tested}"
