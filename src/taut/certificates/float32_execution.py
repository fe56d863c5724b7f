"""Networks run as float32 certificates assume: convolutions as matrix products."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from taut.audit import Prepared, Program, find_program, prepare
from taut.certificates.rounded_execution import operation_name
from taut.rules import Call
from taut.rules.convolution import direct_convolution
from taut.rules.operation_registry import bind_arguments


def direct_executor(
    model: nn.Module, input_shape: tuple[int, ...] | None = None
) -> Callable[[Tensor], Tensor]:
    """The network of `model` as a function that keeps what float32 certificates assume.

    Convolutions are one matrix product over unfolded windows, so no fast transform (Winograd, FFT)
    is chosen behind your back; all else runs as torch runs it, in evaluation mode.

    Args:
        model: any network that `taut.bound_lipschitz` follows; not changed.
        input_shape: as there.

    Example:
        >>> net = torch.nn.Conv2d(1, 2, 3, padding=1)
        >>> x = torch.randn(4, 1, 5, 5)
        >>> torch.allclose(direct_executor(net)(x), net(x), atol=1e-6)
        True
    """
    prepared = prepare(model, "direct_executor")
    return float32_executor(prepared, find_program(prepared, input_shape, "direct_executor"))


def float32_executor(prepared: Prepared, program: Program) -> Callable[[Tensor], Tensor]:
    """What float32 certificates speak of: the model itself, or for convolutions direct sums."""
    targets = {str(node.target) for node in program.module.graph.nodes}
    if not any("conv" in target for target in targets):
        return prepared.model
    executor = _DirectExecutor(program)
    return lambda x: torch.no_grad()(executor.run)(x)


class _DirectExecutor(fx.Interpreter):
    """Runs a program on tensors; convolutions by one matrix product over unfolded windows."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.module)
        self.extra_traceback = False

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """One operation."""
        name = operation_name(target)
        if not name.startswith(("conv", "padded_conv")):
            return super().call_function(target, args, kwargs)
        arguments = bind_arguments(target, args, kwargs)
        return direct_convolution(Call(target, arguments), arguments["input"])

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """One layer, by its own direct form if it has one."""
        module: Any = self.fetch_attr(str(target))
        return getattr(module, "run_direct", module)(*args, **kwargs)
