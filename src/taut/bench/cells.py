"""One cell of a table of critics: what was true, what was found, what was proven, and the time."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Cell", "Job", "Stopwatch"]


@dataclass(frozen=True)
class Cell:
    """What one critic made of one problem.

    Attributes:
        part: the table it belongs to.
        problem: the row or column, in words.
        critic: who answered.
        truth: the distance itself.
        truth_error: the standard error of `truth`, where that is a mean over samples.
        estimate: the answer, from samples that took part in no training.
        lower: a proven lower bound of the distance; None for a critic that has none.
        upper: a proven upper bound, likewise.
        confidence: of each bound; 1 where no statistics enter.
        steps: of training.
        fit_cpu: seconds that the process had the processor, for training alone.
        cpu: the same for the whole cell, samples and verdict included.
        wall: seconds on the wall, for the whole cell.
        sizes: what else decides the cell, such as the dimension.

    Example:
        >>> Cell("funnels", "d 2", "cones", truth=2.0, estimate=1.9, lower=1.8).relative_error
        -0.05...
    """

    part: str
    problem: str
    critic: str
    truth: float
    estimate: float | None = None
    truth_error: float = 0.0
    lower: float | None = None
    upper: float | None = None
    confidence: float | None = None
    steps: int | None = None
    fit_cpu: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    sizes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def relative_error(self) -> float | None:
        """`estimate / truth - 1`; None without an estimate or where the truth is zero."""
        if self.estimate is None or self.truth == 0:
            return None
        return self.estimate / self.truth - 1

    @property
    def lower_holds(self) -> bool | None:
        """Whether the lower bound is at most the truth; None without a bound."""
        return None if self.lower is None else self.lower <= self.truth

    @property
    def upper_holds(self) -> bool | None:
        """Whether the upper bound is at least the truth; None without a bound."""
        return None if self.upper is None else self.upper >= self.truth

    def to_plain(self) -> dict[str, Any]:
        """For JSON, with the verdicts added for people."""
        verdicts = {
            name: getattr(self, name) for name in ("relative_error", "lower_holds", "upper_holds")
        }
        return {**asdict(self), **verdicts}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Cell":
        """Reads what `to_plain` gave; verdicts are made anew."""
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in plain.items() if name in names})


@dataclass(frozen=True)
class Job:
    """A cell that is still to be made.

    Attributes:
        name: unique in a run; under it the cell is kept.
        seconds: what it may take, for the time left.
        run: makes the cell.
    """

    name: str
    seconds: float
    run: Callable[[], Cell]


class Stopwatch:
    """Processor and wall time since it was made.

    Example:
        >>> watch = Stopwatch()
        >>> watch.cpu >= 0 and watch.wall >= 0
        True
    """

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    @property
    def wall(self) -> float:
        """Seconds on the wall."""
        return round(time.perf_counter() - self._wall, 3)

    @property
    def cpu(self) -> float:
        """Seconds that this process had the processor."""
        return round(time.process_time() - self._cpu, 3)
