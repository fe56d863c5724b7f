r"""`taut.wasserstein`: how far apart two data sets are, with a guarantee."""

from typing import Any, Literal

from torch import Generator

from taut.data import check_pair
from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.wasserstein.choosing import KINDS, OnProgress
from taut.wasserstein.comparison import Comparison
from taut.wasserstein.confidence import METHODS, Method, check_seed, confidence_of_each
from taut.wasserstein.result import WassersteinResult
from taut.wasserstein.sides import open_side

__all__ = ["wasserstein"]

_SUBJECT = "wasserstein"


def wasserstein(
    x: Any,
    y: Any,
    *,
    confidence: float = 0.95,
    population: bool = True,
    scaling: Literal["none", "standard", "robust"] = "none",
    method: Method = "betting",
    kinds: tuple[str, ...] = KINDS,
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

    With `population=True` the samples stand for populations. Half of each, at most 100,000 rows,
    trains critics, a tenth, at most 10,000, chooses between them, and the rest, unseen, carries the
    lower bound: the difference of mean scores less a confidence slack, divided by the critic's
    *proven* constant. The upper bound is the mean cost of exact transport between independent
    batches, whose expectation is never below the distance, plus a deviation term; it is loose in
    high dimension. Each bound gets half of `1 - confidence`. Streams are read twice and never held:
    memory grows by some 30 bytes a row, however long the row; time is proportional to the rows.

    With `population=False` the two finite sets are compared as they are: a feasible coupling from
    above, a critic from below, both proven, no statistics. Both are read into memory.

    Under `torchrun`, inside `taut.parallel.process_group()`, processes share the batches of the
    fits and the rows to be scored, and all return the same.

    Args:
        x: the first data set: an array, tensor, data frame, `taut.data.Table` or `TableStream`, or
            iterable of batches. One that can be iterated again is a stream; it must give the same
            rows each time.
        y: the second, with the same features.
        confidence: that both bounds hold.
        population: whether to speak of the populations or of the two sets.
        scaling: "none" measures in the data's own units; "standard" (mean and deviation) and
            "robust" (median and quartiles) make features comparable, by the training half alone.
            Constant columns are kept, and noted.
        method: the confidence bound of means: "betting", "bernstein" or "hoeffding".
        kinds: which critics to try: "cones", "network".
        num_steps: training steps of the longest fit; see `patience`.
        patience: each round of fits has twice the steps of the one before, from an eighth of
            `num_steps` on; so many rounds without progress on the choosing rows end the training.
        diameter: a bound of the support's width, for the upper bound; by default the data's own
            width is taken for it, and the bound says so.
        num_permutations: behind the p-value.
        seed: of every draw, at least 0: equal data and seed give equal answers.
        on_progress: called with a stage's name, the steps done and their number.

    Returns:
        Prints as `0.42, in [0.37, 0.61] at 95 %`.

    Raises:
        DataError: text, missing or infinite values, no rows or one, columns that do not match.
        ArgumentError: too few rows for a bound; a stream too long for `population=False`.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> x, y = torch.rand(400, 2, generator=g), torch.rand(400, 2, generator=g) + 1
        >>> result = wasserstein(x, y, num_steps=100)
        >>> result.lower.value <= 2**0.5 <= result.upper.value
        True
    """
    check_choice(_SUBJECT, "scaling", scaling, ("none", "standard", "robust"))
    check_choice(_SUBJECT, "method", method, METHODS)
    check_count(_SUBJECT, "num_steps", num_steps)
    check_count(_SUBJECT, "patience", patience)
    check_count(_SUBJECT, "num_permutations", num_permutations)
    if diameter is not None:
        check_positive(_SUBJECT, "diameter", diameter)
    check_seed(_SUBJECT, seed)
    confidence_of_each(_SUBJECT, confidence)
    if not kinds or set(kinds) - set(KINDS):
        raise ArgumentError(
            f"{_SUBJECT}: `kinds` must be some of 'cones', 'network'; got kinds={kinds!r}."
        )
    sides: Any = open_side(x, "x"), open_side(y, "y")
    pair = check_pair(*sides)
    first, second = pair.first, pair.second
    run = Comparison(
        x=first,
        y=second,
        columns=first.columns or second.columns or None,
        image_shape=first.image_shape or second.image_shape,
        notes=list(pair.notes),
        scaling=scaling,
        kinds=tuple(kinds),
        num_steps=num_steps,
        patience=patience,
        seed=int(seed),
        generator=Generator().manual_seed(int(seed)),
        on_progress=on_progress,
    )
    if population:
        return run.populations(confidence, method, diameter, num_permutations)
    return run.finite_sets()
