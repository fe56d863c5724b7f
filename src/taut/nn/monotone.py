r"""`Monotone`: a network that provably never falls along chosen inputs."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, final

import torch
from torch import Tensor, nn

from taut.audit import audit
from taut.bounds import Bound
from taut.errors import ArgumentError, check_positive
from taut.nn.skip_connection import Residual
from taut.nn.weight_cache import WeightCache
from taut.norms import LINF
from taut.rules import register


@final
class Monotone(nn.Module):
    r"""$g(x) = f(x) + c \sum_i s_i x_i$: rises along inputs with $s_i = 1$, falls along those with $-1$.

    With $|f(x) - f(x')| \le K \|x - x'\|_1$ and $c = (1 + \text{slack}) K$, for $x$ and $x'$ that
    differ only in inputs with $s_i \ne 0$ and there by $s_i (x'_i - x_i) \ge 0$,

    $$g(x') - g(x) \ge (c - K) \|x' - x\|_1 \ge 0.$$

    $K$ is the *proven* constant of the whole network from L1 to L-inf, the largest slope of any
    output along any single input. It is never above the constants in L2 and L-inf, so a network with
    constant 1 in any of the three norms does. Evaluation proves it again whenever a tensor, a number
    among the attributes, a hook or a layer of the network has changed; `bound_increase` and `taut.fold`
    always do. Training uses the last proof: constrained layers never exceed it, others may until the
    next evaluation. `torch.compile` breaks its graph at that proof; fold a network to compile it whole.

    Folded, it is a `Residual` with a linear shortcut of weight $c s$, which `taut.save`,
    `taut.certify` and exporters know. In floating point, outputs at inputs closer than
    `taut.certificates.bound_order_gap` may be exchanged by roundoff.

    Args:
        network: maps `(n, features)` to `(n, outputs)`; any that `taut.bound_lipschitz` follows.
        directions: -1, 0 or 1 for each feature, or `(outputs, features)` for each output.
        slack: least slope along the chosen inputs, as a share of $K$: what roundoff may not reverse.

    Example:
        >>> net = Monotone(taut.nn.mlp([2, 16, 1]), [1, 0]).eval()
        >>> rows = torch.tensor([[0.0, 0.3], [0.5, 0.3], [0.9, 0.3]])
        >>> bool((net(rows).diff(dim=0) > 0).all())
        True
        >>> net.bound_increase().value > 0
        True
    """

    directions: Tensor
    slope: Tensor

    def __init__(
        self,
        network: nn.Module,
        directions: Sequence[int] | Sequence[Sequence[int]] | Tensor,
        slack: float = 0.01,
    ) -> None:
        super().__init__()
        check_positive("Monotone", "slack", slack)
        signs = torch.as_tensor(directions)
        usual = bool((signs.abs() <= 1).all()) and bool((signs == signs.round()).all())
        if signs.dim() not in (1, 2) or not signs.numel() or not usual:
            rule = "must be -1, 0 or 1 for each feature, or a row of them for each output"
            raise ArgumentError("Monotone", "directions", rule, f"directions={directions!r}")
        self.network = network
        self.slack = float(slack)
        like = next(network.parameters(), torch.empty(0))
        self.register_buffer("directions", signs.to(like.device, torch.int8), persistent=False)
        self.register_buffer("slope", torch.zeros((), device=like.device), persistent=False)
        self._cache = WeightCache()
        self.outputs = 0
        self._refresh()

    @torch.no_grad()
    def _refresh(self) -> float:
        """Sets `slope` to a number of the network's dtype above $(1 + slack) K$; returns $K$."""
        found = audit(self.network, "l1", (self.directions.shape[-1],))
        shape, constant = found.output.shape, found.output.constants[LINF]
        rows = self.directions.shape[0] if self.directions.dim() == 2 else 1
        if shape is None or len(shape) != 1 or rows not in (1, shape[0]):
            rule = f"must give a row of outputs, one for each of {rows} rows of directions"
            raise ArgumentError("Monotone", "network", rule, f"outputs of shape {shape}")
        self.outputs = shape[0]
        wanted = float(Fraction(constant) * (1 + Fraction(self.slack)))
        slope = torch.tensor(wanted, dtype=torch.float64).to(self._dtype())
        slope = torch.nextafter(slope, torch.full_like(slope, math.inf)) if constant else slope
        self.slope = slope.to(self.directions.device)
        self._cache.keep(self._numbers(), self.slope.new_tensor(constant, dtype=torch.float64))
        self._proven_structure = self._structure()
        return constant

    def _tensors(self) -> list[Tensor]:
        return [*self.network.parameters(), *self.network.buffers()]

    def _dtype(self) -> torch.dtype:
        floats = (value.dtype for value in self._tensors() if value.is_floating_point())
        return next(floats, torch.float32)

    def _numbers(self) -> Tensor:
        """All numbers of the network in a row."""
        held = [value.detach().flatten().to(torch.float64) for value in self._tensors()]
        return torch.cat([torch.zeros(1, dtype=torch.float64), *held])

    def _structure(self) -> list[tuple[Any, ...]]:
        """What else decides the function: the layers, their hooks, and numbers among their attributes."""
        return [
            (
                layer,
                *layer._forward_hooks.values(),
                *layer._forward_pre_hooks.values(),
                *((k, v) for k, v in vars(layer).items() if not k.startswith("_") and _is_plain(v)),
            )
            for layer in self.network.modules()
        ]

    @torch.compiler.disable()
    def _constant(self) -> float:
        """The proven constant of the network as it stands; proves it again after a change."""
        if any(layer.training for layer in self.network.modules()):
            rule = "must be in evaluation mode, as the layer around it is"
            remedy = "Call .eval() on the whole model."
            raise ArgumentError("Monotone", "network", rule, remedy=remedy)
        known = self._cache.recall(self._numbers())
        if known is not None and self._structure() == self._proven_structure:
            return float(known)
        if any(type(value) is not nn.Parameter for value in self.network.parameters()):
            rule = (
                "must hold the weights that are evaluated: those given by "
                "torch.func have no proven constant"
            )
            remedy = "Call .train() first, or evaluate the networks one by one."
            raise ArgumentError("Monotone", "network", rule, remedy=remedy)
        return self._refresh()

    def _shortcut(self) -> Tensor:
        """The weight `(outputs, features)` of the linear part, one row for each output."""
        weight = self.slope * self.directions.to(self.slope.dtype)
        return weight.reshape(-1, weight.shape[-1]).expand(self.outputs, -1).contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(n, features)` to `(n, outputs)`."""
        if not (self.training or x.is_meta or torch.compiler.is_exporting()):
            self._constant()
        return x @ self._shortcut().to(x.dtype).mT + self.network(x)

    def as_residual(self) -> Residual:
        """The same map as a `Residual` around the network itself, with the slope of a fresh proof."""
        self._refresh()
        weight = self._shortcut()
        shortcut = nn.Linear(weight.shape[1], self.outputs, bias=False, device="meta")
        shortcut.weight = nn.Parameter(weight, requires_grad=False)
        return Residual(self.network, "add", 1.0, shortcut)

    def bound_increase(self) -> Bound:
        r"""A proven lower bound of $s_i\,\partial g / \partial x_i$ wherever $s_i \ne 0$: $c - K$."""
        constant = Fraction(self._refresh())
        rate = float(Fraction(self.slope.item()) - constant)
        return Bound(
            max(0.0, math.nextafter(rate, -math.inf)),
            side="lower",
            method="slope of the linear part minus the proven constant from l1 to linf",
        )

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"directions={self.directions.tolist()}, slack={self.slack}"


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str | tuple) or callable(value)


register(Monotone, plain=Monotone.as_residual)
