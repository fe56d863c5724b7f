"""Verdicts: whether recorded numbers confirm a claim, by inequalities that it implies."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Check", "Verdict", "budget"]

Values = Sequence[float]

# Settings of the computing budget, and their names in sentences.
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
class Check:
    """An inequality that a claim implies: in each case, one number exceeds another.

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
        >>> check = Check("MaxMin above ReLU", {"dim 2": ([0.9], [0.5]), "dim 3": ([], [0.4])})
        >>> check.outcome, check.missing
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
        by = f" {'+' if self.by > 0 else '-'} {abs(self.by):g}" if self.by else ""
        return f"{name}: {larger:.4g} > {smaller:.4g}{by}, {word}"


@dataclass(frozen=True)
class Verdict:
    """The verdict of the records on a claim.

    Attributes:
        checks: the inequalities that the claim implies.
        budget: the computing budget, compared with the paper.
        departs_from_paper: whether a cell is not one of the paper's; usually the budget is smaller.
        conclusive: whether the cells are large enough to say anything about the paper.
    """

    checks: Sequence[Check]
    budget: str
    departs_from_paper: bool = False
    conclusive: bool = True

    def outcome(self, check: Check) -> str:
        """The outcome of a check at this budget: "holds", "fails" or "undecided"."""
        excused = check.magnitude and self.departs_from_paper and check.outcome == "fails"
        return check.outcome if self.conclusive and not excused else "undecided"

    @property
    def word(self) -> str:
        """Either "refuted" if a check fails, or "confirmed" if all checks hold, or "undecided"."""
        outcomes = {self.outcome(check) for check in self.checks}
        if "fails" in outcomes:
            return "refuted"
        return "confirmed" if outcomes == {"holds"} else "undecided"

    @property
    def seeds(self) -> str:
        """The number of seeds of a mean, as a range."""
        counts = [
            len(side)
            for check in self.checks
            for name, pair in check.cases.items()
            if check.case(name) != "missing"
            for side in pair
            if not isinstance(side, (int, float))
        ]
        low, high = min(counts, default=0), max(counts, default=0)
        return f"{low}" if low == high else f"{low} to {high}"

    @property
    def reason(self) -> str:
        """Which checks hold and fail, and what is missing."""
        if not self.conclusive:
            return "Only the preset smoke has been run."
        if not any(len(check.missing) < len(check.cases) for check in self.checks):
            return "No cells have been run."
        sentences = []
        for outcome, intro in (("fails", "Fails"), ("undecided", "Open"), ("holds", "Holds")):
            checks = [check for check in self.checks if self.outcome(check) == outcome]
            if checks:
                sentences.append(f"{intro}: {'; '.join(map(_brief, checks))}.")
        return " ".join(sentences)


def _brief(check: Check) -> str:
    """The statement, with the cases that decide against it."""
    for word in ("fails", "missing", "too close"):
        cases = check.cases_that(word)
        if cases and len(check.cases) > 1:
            more = f" and {len(cases) - _LISTED} more" if len(cases) > _LISTED else ""
            return f"{check.statement} ({word}: {', '.join(cases[:_LISTED])}{more})"
        if cases:
            return check.statement + (f" ({word})" if word != "fails" else "")
    return check.statement


def budget(ours: Sequence[Mapping[str, Any]], paper: Sequence[Mapping[str, Any]]) -> str:
    """The settings of the computing budget that differ from the paper's.

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
    values_of: dict[str, set[float]] = {}
    for config in configs:
        for name, value in _numbers(config):
            values_of.setdefault(name, set()).add(value)
    sizes = {
        name: f"{min(values):g}" + (f" to {max(values):g}" if len(values) > 1 else "")
        for name, values in values_of.items()
    }
    return {**sizes, "seeds": str(len({config["seed"] for config in configs}))}


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            prefix = "" if name == "training" else f"{name} "
            yield from ((prefix + inner, size) for inner, size in _numbers(value))
        elif name in _BUDGET and value:
            yield _BUDGET[name], float(max(value)) if isinstance(value, list) else float(value)
