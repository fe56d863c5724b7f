r"""`taut.wasserstein`: how far apart two data sets are, with a guarantee."""

from collections.abc import Mapping
from typing import Any

from taut.data import Encoding
from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.transport.arguments import check_seed, confidence_of_each
from taut.transport.critic_selection import CRITICS, CriticName, OnProgress
from taut.transport.feature_scaling import SCALINGS, Scaling
from taut.transport.finite_comparison import FiniteComparison
from taut.transport.input_data import open_pair
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

    By default `x` and `y` are treated as i.i.d. samples of two populations, and each is split into three
    parts. Half of the rows train critics (up to three quarters of large samples in 16 dimensions and
    more; at most 100,000 rows), a tenth selects one critic (at most 10,000 rows), and the held-out rest
    gives the lower bound: the difference of the mean scores, minus the width of its confidence bound,
    divided by the critic's *proven* constant. With up to 5,000 rows there are two stages, so that more
    rows count for the lower bound: a critic trained on the first 30 % is evaluated on the second 30 %,
    which then help to train the final critic. The upper bound is the cost of a transport plan between up
    to 32,768 rows of each sample, plus a deviation term; on average, the distance between samples is
    never below the distance between the populations. In high dimensions the upper bound may be
    uninformative, which `upper_is_useful` states. Each bound gets half of the error probability
    `1 - confidence`. Streams are read twice and not kept: memory grows by about 30 bytes per row,
    whatever the number of columns, and time is proportional to the number of rows.

    With `finite=True` the two finite sets themselves are compared: a transport plan gives the upper
    bound and a critic the lower one, both proven, without statistics. Both sets are read into memory.

    Data with one column are sorted in memory instead. Finite sets are then measured exactly;
    for populations, half of each sample (at most 100,000 rows) determines the critic without training,
    the other rows give the lower bound, and all rows the upper bound. `critics`, `num_steps` and
    `patience` have no effect.

    Under `torchrun`, inside `taut.parallel.process_group()`, the processes share the training batches
    and the rows to score, and all return the same result.

    Args:
        x: first data set: an array, tensor, data frame, `taut.data.Table` or `TableStream`, or
            iterable of batches. One that can be iterated again is a stream; it must give the same
            rows each time.
        y: second data set, with the same features.
        confidence: joint confidence level of both bounds.
        finite: compare the two finite sets instead of the populations behind them.
        scaling: scaling of the features: "none" keeps the data's own units; "standard" (mean and
            standard deviation) and "robust" (median and quartiles) make features comparable, and are
            fitted to the training rows only. By default "standard" for tables with categories, dates
            or missing values, else "none". Constant columns are kept, with a note.
        encoding: encoding of the columns of two frames, or of streams of text or parquet files: a
            `taut.data.Encoding`, or options of `taut.data.fit_encoding` such as
            `{"drop": ["id"], "categorical": ["month"]}`. By default it is inferred from all rows of
            both tables, including the held-out ones. It determines the type of each column and which
            columns are left out (`notes` lists them), and so the metric on rows; the distance between
            two rows does not depend on any other row. The bounds treat this metric as if it had been
            fixed beforehand. An encoding that was fitted beforehand needs no such assumption, but
            there is no upper bound if rows have categories or missing values that it has not seen.
        method: type of confidence bound for the means: "betting", "bernstein" or "hoeffding".
        critics: names of the critics to try.
        num_steps: training steps of the longest fit; see `patience`.
        patience: number of training rounds without progress on the validation rows after which
            training stops; the rounds end after an eighth, a half and all of `num_steps`.
        diameter: largest possible distance between two rows of the same population, which the upper
            bound needs; by default twice the largest distance of a row from the mean, an assumption
            that the bound states.
        num_permutations: number of permutations for the p-value.
        seed: random seed, at least 0: equal data and seed give equal results.
        on_progress: called with the name of the stage, the number of steps done and their total.

    Returns:
        Prints as `0.42, in [0.37, 0.61] at 95 % if neither population is wider than the data, p = 0.001`.

    Raises:
        DataError: values are infinite, there are fewer than two rows, or columns do not match; for
            arrays, also text and missing values.
        ArgumentError: there are too few rows for a bound, or a stream is too long for `finite=True`.

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
        raise ArgumentError(_SUBJECT, "critics", rule, f"{critics=!r}")
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
