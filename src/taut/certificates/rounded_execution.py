"""Programs run in float64 with a proven error at every operation."""

import copy
import math
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor, fx, nn

from taut.audit import Program, RuleInterpreter, find_program, prepare
from taut.certificates.rounded_tensor import ErrorBound, LastLayer, RoundedTensor, added_rounding
from taut.errors import NoRuleError, check_choice
from taut.names import Arithmetic
from taut.norms import Norm
from taut.rules import Call, Constants, Record, Value

aten = torch.ops.aten
# Behind these a last dense layer is still the last one.
_PASSING = {"identity", "clone", "contiguous", "alias", "detach", "flatten", "view", "reshape"}

_DTYPES = {"real": None, "float64": torch.float64, "float32": torch.float32}


def dtype_of(arithmetic: Arithmetic, subject: str) -> torch.dtype | None:
    """The dtype of an execution; None for real numbers."""
    check_choice(subject, "arithmetic", arithmetic, tuple(_DTYPES))
    return _DTYPES[arithmetic]


def in_double(program: Program, device: torch.device) -> Program:
    """The same program with its stored tensors in float64, on a device; nothing is rounded."""
    module = copy.deepcopy(program.module).to(device, torch.float64)
    return Program(module, program.input_shape, program.exported)


def program_in_double(
    model: nn.Module, input_shape: tuple[int, ...], subject: str, device: torch.device
) -> Program:
    """The program of a model on inputs of this shape, its stored tensors in float64."""
    return in_double(find_program(prepare(model, subject), input_shape, subject), device)


class RoundedExecution(RuleInterpreter):
    """Runs a program on batches in float64, together with a bound of every rounding error.

    Args:
        program: for inputs of a known shape, with its stored tensors in float64.
        norm: norm in which the input moves.
        dtype: the arithmetic of the execution under study; None for real numbers.
        subject: subject of errors.
    """

    tracked = RoundedTensor

    def __init__(
        self, program: Program, norm: Norm, dtype: torch.dtype | None, subject: str
    ) -> None:
        super().__init__(program, subject)
        assert program.input_shape is not None
        self.reach = Constants.of_input(norm, math.prod(program.input_shape))
        self.dtype = dtype
        self.assumptions: dict[str, None] = {}

    def __call__(self, x: Tensor) -> tuple[RoundedTensor, Tensor]:
        """The output for `(batch, ...)`, and how far from each sample nothing can overflow."""
        nothing = Constants.of(x.new_zeros(3, len(x)))
        still = Constants.of(x.new_zeros(3))
        reach = Constants.of(self.reach.values.to(x))
        self.limit = x.new_full((len(x),), math.inf)
        return self.run(RoundedTensor(x, ErrorBound(nothing, nothing, reach, still))), self.limit

    def value_of(self, tracked: RoundedTensor) -> Value:
        """Its shape; the constants are put in where they are asked for."""
        return Value(tracked.bound.reach, tracked.shape)

    def size_of(self, tracked: RoundedTensor) -> Any:
        """The number of samples."""
        return len(tracked.value)

    def apply(self, record: Record, call: Call, tracked: list[Any], node: fx.Node) -> Any:
        """The result with what the operation rounds."""
        if not record.exact and record.rounding is None:
            rule = "what its execution rounds is not known"
            raise NoRuleError(rule=rule, remedy="Use bound_lipschitz.")
        refuse_extreme(call, self.dtype)
        if record.exact and self.dtype is not None:
            call = with_rounded_numbers(call, self.dtype)
        with torch.backends.cudnn.flags(enabled=False):
            value = call.run(*(r.value for r in tracked))
        results = value if isinstance(value, (tuple, list)) else [value]
        made = [
            self._rounded(record, call, tracked, part, node)
            for part in results
            if part.is_floating_point()
        ]
        return tuple(made) if isinstance(value, (tuple, list)) else made[0]

    def _rounded(
        self, record: Record, call: Call, tracked: list[RoundedTensor], value: Tensor, node: fx.Node
    ) -> RoundedTensor:
        size = math.prod(value.shape[1:])
        assert record.constants is not None
        columns = zip(*(r.bound.parts for r in tracked), strict=True)
        carried = ErrorBound(
            *(
                record.constants(
                    call.with_values(
                        [Value(c, r.shape) for c, r in zip(column, tracked, strict=True)]
                    )
                ).within(size)
                for column in columns
            )
        )
        if record.exact:
            keeps = record.proof == "permutation" and operation_name(call.target) in _PASSING
            same = len(tracked) == 1 and value.shape == tracked[0].value.shape
            return RoundedTensor(value, carried, tracked[0].last if keeps and same else None)
        assert record.rounding is not None
        if record.rounding.assumes and self.dtype is not None:
            self.assumptions[record.rounding.assumes] = None
        fresh, limit = added_rounding(record.rounding, call, tracked, value, self.dtype)
        self.limit = torch.minimum(self.limit, limit)
        return RoundedTensor(value, carried + fresh, self._last(call, tracked, value, fresh))

    def _last(
        self, call: Call, tracked: list[RoundedTensor], value: Tensor, fresh: ErrorBound
    ) -> LastLayer | None:
        """The last dense layer behind the result: this one, or one that was only scaled since."""
        if call.target is aten.linear.default and value.dim() == 2:
            return LastLayer(tracked[0].bound, call["weight"], 1.0, fresh)
        last = tracked[0].last if len(tracked) == 1 else None
        other = call["other"]
        if last is None or call.target is not aten.mul.Tensor or not isinstance(other, Real):
            return None
        scale = math.nextafter(abs(float(other)), math.inf)
        older = ErrorBound(*(part.scaled(scale) for part in last.fresh.parts))
        factor = math.nextafter(last.factor * scale, math.inf)
        return replace(last, factor=factor, fresh=older + fresh)


def refuse_extreme(call: Call, dtype: torch.dtype | None) -> None:
    """Raises for numbers in the code that float32 would change by more than a counted rounding."""
    if dtype != torch.float32:
        return
    for name, argument in call.arguments.items():
        if isinstance(argument, float):
            fits = not math.isfinite(argument) or 2.0**-100 <= abs(argument) <= 2.0**100
        else:
            place = name in ("start", "end") or not isinstance(argument, int)
            fits = place or abs(argument) <= 2**24
        if not fits and argument:
            rule = f"the number {argument} hardly fits float32"
            raise NoRuleError(rule=rule, remedy="Use arithmetic='real'.")


def with_rounded_numbers(call: Call, dtype: torch.dtype) -> Call:
    """The call with the numbers of the code, such as limits, as an execution in `dtype` has them."""

    def rounded(argument: Any) -> Any:
        return (
            torch.tensor(argument, dtype=dtype).item() if isinstance(argument, float) else argument
        )

    return replace(call, arguments={n: rounded(argument) for n, argument in call.arguments.items()})


def operation_name(target: Any) -> str:
    """The name of an operation of torch without its overload, such as `conv2d`."""
    return getattr(target, "_opname", None) or getattr(target, "__name__", "")
