"""Activations of single entries with slopes in [-1, 1]: absolute value, learned slopes, smooth."""

from typing import final

import torch
from torch import Tensor, nn

from taut.errors import check_count, check_positive, check_within
from taut.nn.function_layer import FunctionLayer
from taut.rules import Call, FileSchema, Rounding, register, relu_forms
from taut.rules.elementwise import image_of_magnitudes
from taut.rules.operation_registry import Bounds
from taut.rules.shared_rules import same_constants


@final
class Abs(nn.Module):
    """The absolute value of each entry: a fold along every axis.

    1-Lipschitz and gradient-norm-preserving in every p-norm.

    Example:
        >>> Abs()(torch.tensor([-1.0, 2.0]))
        tensor([1., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        return x.abs()


register(
    Abs,
    call=lambda m: (torch.ops.aten.abs.default, {}),
    relu=relu_forms.absolute_value,
    file=FileSchema(Abs),
)


@final
class LPReLU(nn.Module):
    r"""$\max(0, x) + a \min(0, x)$ with learned slopes $a$ held in $[-1, 1]$.

    1-Lipschitz in every norm, whatever the parameter; `torch.nn.PReLU` is as steep as training makes
    it. At $a = -1$ it is the absolute value, at $a = 0$ ReLU.

    Args:
        num_parameters: 1, or the number of channels, dimension 1 of the input.
        init: the starting slope, in [-1, 1].

    Example:
        >>> LPReLU(init=-0.5)(torch.tensor([-2.0, 3.0])).detach()
        tensor([1., 3.])
    """

    def __init__(self, num_parameters: int = 1, init: float = -0.5) -> None:
        super().__init__()
        check_count("LPReLU", "num_parameters", num_parameters)
        check_within("LPReLU", "init", init, "[-1, 1]")
        self.num_parameters = num_parameters
        self.weight = nn.Parameter(torch.full((num_parameters,), float(init)))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        slope = self.weight.clamp(-1, 1)
        if self.num_parameters > 1:
            slope = slope.view(-1, *(1,) * (x.dim() - 2))
        return torch.where(x > 0, x, slope * x)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"num_parameters={self.num_parameters}"


def _with_slopes_held(layer: LPReLU) -> nn.PReLU:
    plain = nn.PReLU(layer.num_parameters)
    plain.weight = nn.Parameter(layer.weight.detach().clamp(-1, 1))
    return plain


register(
    LPReLU,
    plain=_with_slopes_held,
    file=FileSchema(
        LPReLU,
        {"num_parameters": int},
        {"num_parameters": 1},
        lambda a: {"weight": (a["num_parameters"],)},
    ),
)


def soft_huber(x: Tensor, delta: float) -> Tensor:
    r"""$\sqrt{x^2 + \delta^2} - \delta$, entry by entry."""
    return (x.square() + delta**2).sqrt() - delta


@final
class SoftHuber(FunctionLayer, function=soft_huber, arguments={"delta": float}):
    r"""$\sqrt{x^2 + \delta^2} - \delta$: the absolute value with a rounded tip, entry by entry.

    Smooth, and 1-Lipschitz in every norm: the slope is $x / \sqrt{x^2 + \delta^2}$. Within
    $\delta$ of `Abs` everywhere.

    Args:
        delta: width of the tip.

    Example:
        >>> SoftHuber(3.0)(torch.tensor([-4.0, 0.0]))
        tensor([2., 0.])
    """

    def __init__(self, delta: float = 0.05) -> None:
        super().__init__()
        check_positive("SoftHuber", "delta", delta)
        self.delta = float(delta)


def _image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> Bounds:
    least, most = image_of_magnitudes(call, lower, upper)
    return call.run(least), call.run(most)


register(
    soft_huber,
    proof="largest slope",
    constants=same_constants,
    # Two squares, of which one is a number of the code, a sum, a root and a difference.
    rounding=Rounding(
        lambda call: 12, lambda call, x: x.abs() + 2 * call["delta"], same_constants, squares=True
    ),
    image=_image,
)
