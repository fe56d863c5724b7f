"""The graph of a forward, and whether it is what the model really does."""

import inspect
import math

import torch
from torch import Tensor, fx, nn

from taut import functional
from taut.audit.rules import find_rule
from taut.errors import NonFiniteError, NoRuleError, TautError
from taut.nn import ConstrainedLinear, Residual

__all__ = [
    "SUBJECT",
    "Tracer",
    "check_modules",
    "compare",
    "first_shape",
    "refuse_unseen_forwards",
    "tensor_like",
    "trace",
]

SUBJECT = "bound_lipschitz"


_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, Residual)


class Tracer(fx.Tracer):
    """Stops at modules that have a rule and at torch's own, so that refusals can name them."""

    def __init__(self) -> None:
        ours = tuple(getattr(functional, name) for name in functional.__all__)
        super().__init__((math, functional), ours)  # type: ignore[arg-type]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether to stop at `m` instead of looking into its forward."""
        if find_rule(m) is not None:
            return True
        return type(m).__module__.startswith("torch.nn") and type(m) not in _CONTAINERS


def trace(model: nn.Module) -> tuple[nn.Module, fx.Graph]:
    """The graph of a model's forward, and the model it speaks of: a bare layer is put in a row."""
    if Tracer().is_leaf_module(model, ""):
        model = nn.Sequential(model)
    # Arguments that have a default keep it, so that `mask=None` takes its own branch.
    parameters = list(inspect.signature(model.forward).parameters.values())
    defaults = {p.name: p.default for p in parameters[1:] if p.default is not p.empty}
    try:
        return model, Tracer().trace(model, concrete_args=defaults)
    except TautError:
        raise
    except Exception as error:
        raise NoRuleError(
            f"{SUBJECT}: the forward of {type(model).__name__} cannot be followed: {error} "
            "Forwards that branch on values have no single graph; split the model, or register a "
            "rule with taut.audit.rule."
        ) from error


def first_shape(graph: fx.Graph, model: nn.Module) -> tuple[int, ...] | None:
    """The shape of one input, when the first layer tells."""
    source = next(node for node in graph.nodes if node.op == "placeholder")
    for user in source.users:
        if user.op == "call_module":
            module = model.get_submodule(str(user.target))
            if isinstance(module, (nn.Linear, ConstrainedLinear)):
                return (int(module.in_features),)
    return None


def check_modules(model: nn.Module) -> None:
    """Raises where a module is not what its type says."""
    hooks = torch.nn.modules.module
    if hooks._global_forward_hooks or hooks._global_forward_pre_hooks:
        raise NoRuleError(
            f"{SUBJECT}: global forward hooks may change what every module computes. Remove them."
        )
    for name, module in model.named_modules():
        place = f"`{name or 'model'}` ({type(module).__name__})"
        if module._forward_hooks or module._forward_pre_hooks:
            raise NoRuleError(
                f"{SUBJECT}: {place} has forward hooks, which may change what it computes. "
                "Remove them first."
            )
        if "forward" in vars(module):
            raise NoRuleError(
                f"{SUBJECT}: the forward of {place} was replaced on the instance, so its type "
                "says nothing. Write a class for it."
            )
        for held, tensor in (
            *module.named_parameters(recurse=False),
            *module.named_buffers(recurse=False),
        ):
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise NonFiniteError(
                    f"{SUBJECT}: `{held}` of {place} must be finite; got NaN or infinity."
                )


def refuse_unseen_forwards(model: nn.Module) -> None:
    """Raises for forwards that could not be run beside the graph traced from them."""
    for name, module in model.named_modules():
        container = type(module) in _CONTAINERS
        if not container and not Tracer().is_leaf_module(module, name):
            raise NoRuleError(
                f"{SUBJECT}: `{name or 'model'}` ({type(module).__name__}) has a forward of its "
                "own, and the graph traced from it must be compared with it. Give `input_shape`."
            )


def compare(model: nn.Module, graph: fx.Graph, shape: tuple[int, ...]) -> None:
    """Raises unless the traced graph and the model give the same for a few inputs."""
    traced = fx.GraphModule(model, graph)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for batch in (1, 3):
            drawn = torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
            x = drawn.to(tensor_like(model))
            real, followed = model(x.clone()), traced(x.clone())
            scale = real.abs().amax().clamp_min(torch.finfo(real.dtype).tiny) if real.numel() else 1
            if real.shape != followed.shape or bool(((real - followed).abs() > 1e-4 * scale).any()):
                raise NoRuleError(
                    f"{SUBJECT}: the graph traced from the forward does not do what the model "
                    "does: it branches on what tracing cannot see, or draws at random."
                )


def tensor_like(model: nn.Module) -> Tensor:
    """A tensor with the dtype and device that the model wants."""
    held = (*model.parameters(), *model.buffers())
    return next((tensor for tensor in held if tensor.is_floating_point()), torch.zeros(()))
