"""Boxes of inputs to boxes of outputs: interval propagation, rounded outward."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from taut.audit import RuleInterpreter
from taut.certificates.input_checks import check_float32
from taut.certificates.rounded_execution import (
    dtype_of,
    program_in_double,
    refuse_extreme,
    with_rounded_numbers,
)
from taut.errors import ArgumentError, NoRuleError
from taut.linalg.rounding import check_arithmetic, gamma
from taut.names import Arithmetic
from taut.rules import Call, Constants, Record, Value

_SUBJECT = "bound_outputs"


class Box:
    """Lower and upper ends of a batch of tensors, entry by entry, in float64.

    Attributes:
        lower: lower ends.
        upper: upper ends.
        last: the dense layer that these are the outputs of, where they are.
    """

    def __init__(self, lower: Tensor, upper: Tensor, last: "LastBoxes | None" = None) -> None:
        self.lower, self.upper, self.last = lower, upper, last

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.lower.shape[1:])


@dataclass(frozen=True)
class LastBoxes:
    """A dense layer behind boxes.

    Attributes:
        features: boxes of its input.
        weight: `(classes, features)`.
        bias: `(classes,)`, or None.
        slack: `(batch, classes)`: what the computation of the ends, and one execution, may be off by.
    """

    features: Box
    weight: Tensor
    bias: Tensor | None
    slack: Tensor


@torch.no_grad()
def bound_outputs(
    model: nn.Module, lower: Tensor, upper: Tensor, arithmetic: Arithmetic = "real"
) -> tuple[Tensor, Tensor]:
    r"""Ends between which every output lies, for inputs anywhere in a box.

    $$l \le x \le u \;\Rightarrow\; L \le f(x) \le U \quad\text{entry by entry,}$$

    for the network as evaluation runs it, computed exactly or executed in `arithmetic`. Boxes go
    through the network operation by operation: linear maps $W$ take a centre $c$ and a radius $r$
    to $Wc$ and $|W|r$, sorting and other monotone maps take ends to ends, and all else is bounded by
    its largest slope. Every rounding is counted outward.

    Args:
        model: any network that `taut.bound_lipschitz` follows; not changed.
        lower: `(batch, ...)`, finite.
        upper: the same shape, nowhere below `lower`.
        arithmetic: "real", "float64" or, for a model in float32, "float32".

    Returns:
        Two float64 tensors of the output's shape.

    Example:
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, -4.0]]))
        >>> low, high = bound_outputs(model, torch.zeros(1, 2), torch.ones(1, 2))
        >>> round(low.item(), 9), round(high.item(), 9)
        (-4.0, 3.0)
    """
    check_arithmetic(_SUBJECT)
    dtype = dtype_of(arithmetic, _SUBJECT)
    usual = lower.shape == upper.shape and lower.dim() > 0 and bool((lower <= upper).all())
    usual = usual and lower.is_floating_point() and upper.is_floating_point()
    if not usual or not bool((lower.isfinite() & upper.isfinite()).all()):
        raise ArgumentError(
            _SUBJECT,
            rule="`lower` and `upper` must be batches (n, ...) of finite floating-point "
            "numbers, of one shape, and in this order",
            got=f"shapes {tuple(lower.shape)} and {tuple(upper.shape)} of {lower.dtype} and "
            f"{upper.dtype}",
        )
    if arithmetic == "float32":
        check_float32(_SUBJECT, model)
    program = program_in_double(model, tuple(lower.shape[1:]), _SUBJECT, lower.device)
    box = BoxInterpreter(program, _SUBJECT, dtype).run(Box(lower.double(), upper.double()))
    return box.lower, box.upper


class BoxInterpreter(RuleInterpreter):
    """Runs a program, with its stored tensors in float64, on boxes."""

    tracked = Box

    def __init__(self, program: Any, subject: str, dtype: torch.dtype | None) -> None:
        super().__init__(program, subject)
        self.dtype = dtype

    def value_of(self, tracked: Box) -> Value:
        """Its shape; nothing is known of the constants of a box."""
        return Value(Constants(math.inf, math.inf, math.inf), tracked.shape)

    def size_of(self, tracked: Box) -> Any:
        """The number of boxes."""
        return len(tracked.lower)

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """The box of the result, rounded outward."""
        if not record.exact and record.rounding is None:
            raise NoRuleError(rule="what its execution rounds is not known")
        refuse_extreme(call, self.dtype)
        assert record.constants is not None
        # Nothing is known of the boxes' constants, so this proves no norm: it refuses what has none.
        record.constants(call)
        lower, upper = [box.lower for box in tracked], [box.upper for box in tracked]
        if record.image == "monotone":
            low, high = call.run(*lower), call.run(*upper)
            if record.exact and self.dtype is not None and isinstance(low, Tensor):
                stored = with_rounded_numbers(call, self.dtype)
                low = torch.minimum(low, stored.run(*lower))
                high = torch.maximum(high, stored.run(*upper))
            if isinstance(low, (tuple, list)):
                pairs = zip(low, high, strict=True)
                return tuple(Box(a, b) for a, b in pairs if a.is_floating_point())
        elif callable(record.image):
            low, high = record.image(call, lower, upper)
        else:
            low, high = self._by_constant(record, call, tracked)
        if bool((low > high).any()):
            raise NoRuleError(rule="where a box goes is not known for these arguments")
        if record.exact:
            return Box(low, high)
        slack = self._rounding(record, call, lower, upper)
        inf = torch.full_like(low, math.inf)
        last = None
        if call.target is torch.ops.aten.linear.default and low.dim() == 2:
            last = LastBoxes(tracked[0], call["weight"], call["bias"], slack)
        return Box(torch.nextafter(low - slack, -inf), torch.nextafter(high + slack, inf), last)

    def _rounding(
        self, record: Record, call: Call, lower: list[Tensor], upper: list[Tensor]
    ) -> Tensor:
        """What one execution may be off by anywhere in the box, in both arithmetics."""
        rounding = record.rounding
        assert rounding is not None
        count = rounding.count(call)
        widest = [torch.maximum(a.abs(), b.abs()) for a, b in zip(lower, upper, strict=True)]
        terms = rounding.magnitude(call, *widest) * (1 + 2 * gamma(count + 2))
        slack = 4 * gamma(count) * terms + 8 * rounding.lost(call, torch.float64)
        if self.dtype is not None:
            slack = slack + gamma(count, self.dtype) * terms * (1 + 2.0**-40)
            slack = slack + rounding.lost(call, self.dtype)
            slack = torch.where(terms < rounding.ceiling(self.dtype), slack, math.inf)
        if rounding.inner is not None:
            inner = rounding.inner.magnitude(call, *widest) * (1 + 2 * gamma(count + 2))
            ceiling = rounding.inner.ceiling(self.dtype or torch.float64)
            whole = (inner < ceiling).flatten(1).all(1)
            slack = torch.where(whole.view(-1, *(1,) * (slack.dim() - 1)), slack, math.inf)
        return slack

    def _by_constant(self, record: Record, call: Call, tracked: list[Box]) -> tuple[Tensor, Tensor]:
        """By the constant in L-inf: no entry of the result moves further than the widest radius."""
        centres = [(box.lower + box.upper) / 2 for box in tracked]
        radii = [
            torch.maximum(box.upper - c, c - box.lower)
            .reshape(len(c), math.prod(box.shape))
            .amax(1)
            * (1 + 2.0**-50)
            for box, c in zip(tracked, centres, strict=True)
        ]
        inf = torch.full_like(radii[0], math.inf)
        units = [
            Value(Constants(inf, inf, r).within(math.prod(box.shape)), box.shape)
            for r, box in zip(radii, tracked, strict=True)
        ]
        assert record.constants is not None
        reach = record.constants(call.with_values(units)).values[2]
        middle = call.run(*centres)
        reach = reach.view(-1, *(1,) * (middle.dim() - 1))
        return middle - reach, middle + reach
