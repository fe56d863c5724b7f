"""The value types of results: `Bound`, `Interval` and `Estimate`, each with its norm and hypotheses."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal

from taut.errors import ArgumentError, check_choice, check_within
from taut.norms import Norm

__all__ = [
    "Bound",
    "Estimate",
    "Hypotheses",
    "Interval",
    "LayerBound",
    "LayerTable",
    "format_bound",
]


def format_number(value: float, digits: int = 4) -> str:
    """A number in at most `digits` significant digits, below a million without an exponent.

    Example:
        >>> format_number(1234.56, 3), format_number(0.000123)
        ('1230', '0.000123')
    """
    return f"{float(f'{value:.{digits}g}'):.{max(digits, 6)}g}"


def format_bound(value: float, side: str, digits: int = 4) -> str:
    """A bound in at most `digits` significant digits, rounded away from what it bounds.

    Example:
        >>> format_bound(0.123456, "lower"), format_bound(0.123456, "upper")
        ('0.1234', '0.1235')
        >>> format_bound(0.0, "lower")
        '0'
        >>> format_bound(3.1416, "lower", digits=5)
        '3.1416'
    """
    nearest = format_number(value, digits)
    if float(nearest) >= value if side == "upper" else float(nearest) <= value:
        return nearest
    towards = ROUND_CEILING if side == "upper" else ROUND_FLOOR
    return format_number(
        float(Context(prec=digits, rounding=towards).create_decimal(value)), digits
    )


def _as_number(value: float, side: str) -> str:
    return repr(float(format_bound(value, side, digits=5)))


@dataclass(frozen=True)
class LayerBound:
    """The factor of one layer in the bound of a network."""

    name: str
    kind: str
    value: float
    method: str
    input_norm: Norm
    output_norm: Norm


class LayerTable(tuple[LayerBound, ...]):
    """The layers of a bound; prints as a table."""

    def __str__(self) -> str:
        head = ("layer", "kind", "factor", "proven by")
        rows = [(row.name, row.kind, _as_number(row.value, "upper"), row.method) for row in self]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [head, tuple("-" * width for width in widths), *rows]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )


@dataclass(frozen=True)
class Hypotheses:
    """What a bound holds for; prints as a list of sentences.

    Attributes:
        statements: one assumption each.
        input_shape: the shape of one input that the proof used, or None if it holds for every shape.
        digest: a checksum of the operations and stored numbers that were proven.
        digest_of: from a model to the checksum that a proof of it would state.

    Example:
        >>> print(Hypotheses(("rows are independent samples",)))
        - rows are independent samples
    """

    statements: tuple[str, ...] = ()
    input_shape: tuple[int, ...] | None = None
    digest: str = ""
    digest_of: Callable[[Any], str] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(f"- {statement}" for statement in self.statements)


@dataclass(frozen=True)
class Bound:
    """A proven bound: the truth lies on the stated side of `value`, rounding included.

    Attributes:
        value: the bound itself.
        norm: norm of the input, or None where none applies.
        side: "upper" (truth <= value) or "lower" (truth >= value).
        method: what proves it, in a few words.
        confidence: 1.0 for a theorem; below 1 for a statement about samples.
        layers: the factor of each layer; empty for a single operator.
        output_norm: norm of the output, if it differs from that of the input.
        hypotheses: the model and the conditions that the bound holds for.

    Example:
        >>> from taut.norms import L2
        >>> Bound(1.0, L2, method="Cholesky")
        Bound(<= 1.0, l2, proven)
    """

    value: float
    norm: Norm | None = None
    side: Literal["upper", "lower"] = "upper"
    method: str = ""
    confidence: float = 1.0
    layers: LayerTable = field(default_factory=LayerTable, repr=False)
    output_norm: Norm | None = None
    hypotheses: Hypotheses = field(default_factory=Hypotheses, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("Bound", "side", self.side, ("upper", "lower"))
        check_within("Bound", "confidence", self.confidence, "(0, 1]")
        if math.isnan(self.value):
            raise ArgumentError("Bound", "value", "must be a number", "NaN, which bounds nothing")

    def holds_for(self, model: Any) -> bool:
        """Whether `model` computes, in evaluation, exactly what this bound was proven of.

        Operations and stored numbers are compared by checksum. False for a bound that is not about
        a network.
        """
        known = self.hypotheses.digest_of
        return known is not None and known(model) == self.hypotheses.digest

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        sign = "<=" if self.side == "upper" else ">="
        parts = [f"{sign} {_as_number(self.value, self.side)}"]
        if self.norm is not None:
            mixed = self.output_norm not in (None, self.norm)
            parts.append(f"{self.norm} to {self.output_norm}" if mixed else str(self.norm))
        parts.append("proven" if self.confidence == 1 else f"at {100 * self.confidence:g} %")
        if self.hypotheses.input_shape is not None:
            parts.append(f"inputs {self.hypotheses.input_shape}")
        return f"Bound({', '.join(parts)})"


@dataclass(frozen=True)
class Estimate:
    """A computed or sampled number without a guarantee: it may be above or below the truth.

    Example:
        >>> Estimate(0.98, method="power iteration")
        Estimate(~ 0.98, power iteration)
    """

    value: float
    norm: Norm | None = None
    method: str = ""

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        parts = [f"~ {self.value:.6g}"]
        if self.norm is not None:
            parts.append(str(self.norm))
        if self.method:
            parts.append(self.method)
        return f"Estimate({', '.join(parts)})"


@dataclass(frozen=True)
class Interval:
    """A lower and an upper bound on the same number; `confidence` is their joint confidence level.

    Example:
        >>> Interval(Bound(0.37, side="lower", confidence=0.975), Bound(0.61, confidence=0.975))
        Interval([0.37, 0.61] at 95 %)
    """

    lower: Bound
    upper: Bound

    def __post_init__(self) -> None:
        if (self.lower.side, self.upper.side) != ("lower", "upper"):
            rule = "`lower` and `upper` must be bounds of those sides"
            got = f"{self.lower.side!r} and {self.upper.side!r}"
            raise ArgumentError("Interval", rule=rule, got=got)

    @property
    def confidence(self) -> float:
        """At least this probability that both bounds hold (union bound)."""
        return max(0.0, self.lower.confidence + self.upper.confidence - 1)

    def __contains__(self, value: float) -> bool:
        return self.lower.value <= value <= self.upper.value

    def __repr__(self) -> str:
        ends = f"[{_as_number(self.lower.value, 'lower')}, {_as_number(self.upper.value, 'upper')}]"
        known = "proven" if self.confidence == 1 else f"at {100 * self.confidence:.4g} %"
        return f"Interval({ends} {known})"
