"""Verdicts: whether recorded numbers confirm a claim, by inequalities that it implies."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Part", "Verdict", "budget"]

Values = Sequence[float]

# Settings that say how much was computed, and what they are called.
_BUDGET = {
    "epochs": "epochs",
    "num_steps": "steps",
    "hidden": "width",
    "channels": "channels",
    "size": "matrix size",
    "starts": "initialisations",
    "rows": "images",
    "attacked": "attacked images",
    "attack_steps": "attack steps",
    "restarts": "restarts",
}
_LISTED = 3


@dataclass(frozen=True)
class Part:
    """A part of a claim: in each case, one number exceeds another.

    A case *holds* if the mean over seeds of the first number exceeds that of the second by more
    than `by`, and *fails* if it does not. It is *too close* to decide if the difference from `by` is
    at most `noise`, or at most two standard errors where both numbers have several seeds.

    Attributes:
        statement: what must hold.
        cases: name of the case -> the number that is claimed to be larger, and the other: values by
            seed, empty where cells are missing, or a constant.
        by: difference that must be exceeded; negative where the numbers may be equal.
        noise: differences that are due to chance, known without seeds.
        magnitude: whether the statement is about a size that grows with the budget, rather than about
            an order of equally trained networks; with less than the paper's budget it cannot fail.

    Example:
        >>> part = Part("MaxMin above ReLU", {"dim 2": ([0.9], [0.5]), "dim 3": ([], [0.4])})
        >>> part.outcome, part.missing
        ('undecided', ['dim 3'])
    """

    statement: str
    cases: Mapping[str, tuple[Values | float, Values | float]]
    by: float = 0.0
    noise: float = 0.0
    magnitude: bool = False

    def values(self, name: str) -> tuple[Values, Values]:
        """Both numbers of a case as lists."""
        larger, smaller = (
            [side] if isinstance(side, (int, float)) else side for side in self.cases[name]
        )
        return larger, smaller

    def case(self, name: str) -> str:
        """One of "holds", "fails", "too close" and "missing"."""
        larger, smaller = self.values(name)
        if not larger or not smaller:
            return "missing"
        above = statistics.fmean(larger) - statistics.fmean(smaller) - self.by
        noise = self.noise
        if min(len(larger), len(smaller)) > 1:
            errors = (statistics.variance(values) / len(values) for values in (larger, smaller))
            noise = max(noise, 2 * math.sqrt(sum(errors)))
        if abs(above) <= noise and noise:
            return "too close"
        return "holds" if above > 0 else "fails"

    def cases_that(self, word: str) -> list[str]:
        """The cases with this outcome."""
        return [name for name in self.cases if self.case(name) == word]

    @property
    def missing(self) -> list[str]:
        """The cases without numbers."""
        return self.cases_that("missing")

    @property
    def outcome(self) -> str:
        """Either "fails" if a case fails, or "holds" if all cases do, or "undecided"."""
        words = [self.case(name) for name in self.cases]
        if "fails" in words:
            return "fails"
        return "holds" if words and set(words) == {"holds"} else "undecided"

    def explain(self) -> str:
        """The numbers of each case, those that decide the outcome first."""
        order = ("fails", "too close", "missing", "holds")
        return "; ".join(self._numbers(name) for word in order for name in self.cases_that(word))

    def _numbers(self, name: str) -> str:
        if (word := self.case(name)) == "missing":
            return f"{name}: missing"
        larger, smaller = map(statistics.fmean, self.values(name))
        return f"{name}: {larger:.4g} against {smaller:.4g}, {word}"


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim.

    Attributes:
        parts: the parts of the claim.
        budget: how much was computed, beside the paper.
        reduced: whether that is less than in the paper.
        conclusive: whether the cells are large enough to say anything about the paper.
    """

    parts: Sequence[Part]
    budget: str
    reduced: bool = False
    conclusive: bool = True

    def outcome(self, part: Part) -> str:
        """The outcome of a part at this budget: "holds", "fails" or "undecided"."""
        excused = part.magnitude and self.reduced and part.outcome == "fails"
        return part.outcome if self.conclusive and not excused else "undecided"

    @property
    def word(self) -> str:
        """Either "refuted" if a part fails, or "confirmed" if all parts hold, or "undecided"."""
        outcomes = {self.outcome(part) for part in self.parts}
        if "fails" in outcomes:
            return "refuted"
        return "confirmed" if outcomes == {"holds"} else "undecided"

    @property
    def seeds(self) -> str:
        """The number of seeds of a mean, as a range."""
        counts = [
            len(side)
            for part in self.parts
            for name, pair in part.cases.items()
            if part.case(name) != "missing"
            for side in pair
            if not isinstance(side, (int, float))
        ]
        low, high = min(counts, default=0), max(counts, default=0)
        return f"{low}" if low == high else f"{low} to {high}"

    @property
    def reason(self) -> str:
        """Which parts hold and fail, and what is missing."""
        if not self.conclusive:
            return "Only the preset smoke has been run."
        if not any(len(part.missing) < len(part.cases) for part in self.parts):
            return "No cells have been run."
        said = []
        for outcome, intro in (("fails", "Fails"), ("undecided", "Open"), ("holds", "Holds")):
            chosen = [part for part in self.parts if self.outcome(part) == outcome]
            if chosen:
                said.append(f"{intro}: {'; '.join(map(_brief, chosen))}.")
        return " ".join(said)


def _brief(part: Part) -> str:
    """The statement, with the cases that decide against it."""
    for word in ("fails", "missing", "too close"):
        found = part.cases_that(word)
        if found and len(part.cases) > 1:
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            return f"{part.statement} ({word}: {', '.join(found[:_LISTED])}{more})"
        if found:
            return part.statement + (f" ({word})" if word != "fails" else "")
    return part.statement


def budget(ours: Sequence[Mapping[str, Any]], paper: Sequence[Mapping[str, Any]]) -> str:
    """The settings that say how much was computed, where they differ from the paper's.

    Example:
        >>> budget([{"epochs": 20, "seed": 0}], [{"epochs": 200, "seed": s} for s in (0, 1)])
        'epochs 20 (paper 200); seeds 1 (paper 2)'
    """
    here, there = _sizes(ours), _sizes(paper)
    differing = [
        f"{name} {here[name]} (paper {there[name]})"
        for name in here
        if name in there and here[name] != there[name]
    ]
    return "; ".join(differing) or "as in the paper"


def _sizes(configs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, set[float]] = {}
    for config in configs:
        for name, value in _numbers(config):
            found.setdefault(name, set()).add(value)
    sizes = {
        name: f"{min(values):g}" + (f" to {max(values):g}" if len(values) > 1 else "")
        for name, values in found.items()
    }
    return {**sizes, "seeds": str(len({config["seed"] for config in configs}))}


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            prefix = "" if name == "training" else f"{name} "
            yield from ((prefix + inner, size) for inner, size in _numbers(value))
        elif name in _BUDGET and value:
            yield _BUDGET[name], float(max(value)) if isinstance(value, list) else float(value)
