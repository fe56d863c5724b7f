"""Checks of arguments that several functions of this package have."""

import math
from numbers import Real

import torch
from torch import Tensor

from taut.errors import ArgumentError, DtypeError, NonFiniteError, check_count


def check_points(subject: str, name: str, points: Tensor) -> Tensor:
    """Returns the points as `(n, d)` in float64 on the CPU; raises unless there are some, all finite."""
    some = points.dim() > 0 and points.numel() > 0
    rule = "must have shape (n, ...) with n >= 1"
    return _numbers(subject, name, points, some, rule).reshape(len(points), -1).contiguous()


def check_point_pair(subject: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both sets as `check_points` does; raises unless they have the same dimension."""
    x, y = check_points(subject, "x", x), check_points(subject, "y", y)
    if x.shape[1] != y.shape[1]:
        got = f"{x.shape[1]} and {y.shape[1]} coordinates"
        raise ArgumentError(subject, "x", "and `y` must have points of the same dimension", got)
    return x, y


def check_sample(
    subject: str, name: str, sample: Tensor, low: float = -math.inf, high: float = math.inf
) -> Tensor:
    """Returns the draws in float64 on the CPU; raises unless they are finite and in the range."""
    fits = sample.dim() == 1 and len(sample) > 0
    draws = _numbers(subject, name, sample, fits, "must have shape (n,) with n >= 1")
    lowest, highest = (float(end) for end in torch.aminmax(draws))
    if lowest < low or highest > high:
        rule = f"must lie in [low, high] = [{low}, {high}]"
        got = f"values from {lowest} to {highest}"
        remedy = "Clamp the scores to a range chosen before they were seen."
        raise ArgumentError(subject, name, rule, got, remedy)
    return draws


def _numbers(subject: str, name: str, values: Tensor, fits: bool, shape_rule: str) -> Tensor:
    if not values.dtype.is_floating_point:
        rule, got = "must be a floating-point tensor", f"dtype={values.dtype}"
        raise DtypeError(subject, name, rule, got, "Convert it with .double().")
    if not fits:
        raise ArgumentError(subject, name, shape_rule, f"shape {tuple(values.shape)}")
    numbers = values.detach().to("cpu", torch.float64)
    if not bool(numbers.isfinite().all()):
        remedy = "Drop those rows, or look for what overflowed."
        raise NonFiniteError(subject, name, "must be finite", "NaN or infinity", remedy)
    return numbers


def check_weights(subject: str, name: str, weights: Tensor | None, n: int) -> Tensor:
    """Returns weights of sum 1, each at most three roundings off."""
    if weights is None:
        return torch.full((n,), 1 / n, dtype=torch.float64)
    if weights.shape != (n,):
        rule, got = f"must have shape ({n},), one for each point", f"shape {tuple(weights.shape)}"
        raise ArgumentError(subject, name, rule, got)
    weights = weights.detach().to("cpu", torch.float64)
    total = math.fsum(weights.tolist())
    if not (bool((weights >= 0).all()) and math.isfinite(total) and total > 0):
        got = f"values from {float(weights.min())} to {float(weights.max())}"
        rule = "must be finite, non-negative and not all zero"
        raise ArgumentError(subject, name, rule, got, "Drop the points without a weight.")
    return weights / total


def check_range(subject: str, low: float, high: float) -> tuple[float, float]:
    """Raises unless the ends are finite and in order."""
    low, high = float(low), float(high)
    if not (low < high and math.isfinite(high - low)):
        remedy = "Give a range that contains every draw, fixed before sampling."
        rule, got = "and `high` must be finite with low < high", f"{low} and {high}"
        raise ArgumentError(subject, "low", rule, got, remedy)
    return low, high


def check_confidence(subject: str, confidence: float) -> float:
    """Returns the error probability, `1 - confidence`, never rounded up."""
    if not (isinstance(confidence, Real) and 0 < confidence < 1):
        remedy = "No finite sample gives certainty: use 0.95 or 0.99."
        rule, got = "must lie inside (0, 1)", f"confidence={confidence!r}"
        raise ArgumentError(subject, "confidence", rule, got, remedy)
    exact = 1 - confidence
    return exact if confidence >= 0.5 else math.nextafter(exact, 0)


def confidence_of_each(subject: str, confidence: float) -> float:
    """The confidence of each of two bounds that hold jointly at `confidence`: `(1 + confidence) / 2`.

    Raises unless it is inside (0, 1), and the quotient below 1 in float64.
    """
    check_confidence(subject, confidence)
    each = (1 + float(confidence)) / 2
    if each == 1:
        rule = "must be below 1 by more than float64 can lose in half of the difference"
        got, remedy = f"confidence={confidence!r}", f"Use at most {1 - 2 ** (-50)!r}."
        raise ArgumentError(subject, "confidence", rule, got, remedy)
    return each


def check_seed(subject: str, seed: int) -> None:
    """Raises unless both numpy and torch accept it as a seed."""
    check_count(subject, "seed", seed, minimum=0)
    if seed >= 2**63:
        remedy = "Any smaller whole number, such as 0, serves as well."
        raise ArgumentError(subject, "seed", "must be below 2**63", f"seed={seed!r}", remedy)
