"""`Residual`: a body and a shortcut, with a constant that follows from the body's."""

from typing import final

from torch import Tensor, fx, nn

from taut.errors import ArgumentError, check_choice, check_finite
from taut.rules import register

__all__ = ["Residual"]


@final
class Residual(nn.Module):
    r"""A weighted sum of the input and what `body` makes of it.

    - `"average"`: $(1 - s)\,x + s f(x)$ with $s \in [0, 1]$, by default one half: 1-Lipschitz if
      the body is;
    - `"add"`: $x + s f(x)$, by default $s = 1$: Lipschitz with $1 + |s| L$ for a body with constant
      $L$, as in residual networks.

    The audit looks inside and proves the constant from that of the body.

    Args:
        body: a module that keeps the shape of its input, or makes the shape of the shortcut.
        mode: `"average"` or `"add"`.
        scale: the weight `s` of the body; None for the default of the mode.
        shortcut: module that is applied to the input where the body changes the shape; its output
            then replaces $x$ above.

    Example:
        >>> block = Residual(taut.nn.OrthonormalLinear(4, 4))
        >>> 0.999 < taut.bound_lipschitz(block, input_shape=(4,)).value <= 1
        True
    """

    def __init__(
        self,
        body: nn.Module,
        mode: str = "average",
        scale: float | None = None,
        shortcut: nn.Module | None = None,
    ) -> None:
        super().__init__()
        check_choice("Residual", "mode", mode, ("average", "add"))
        if scale is None:
            scale = 0.5 if mode == "average" else 1.0
        check_finite("Residual", "scale", scale)
        if mode == "average" and not 0 <= scale <= 1:
            raise ArgumentError(
                f"Residual: `scale` must lie in [0, 1] for an average; got scale={scale}. "
                "Use mode='add' for other weights."
            )
        self.body = body
        self.shortcut = shortcut
        self.mode = mode
        self.scale = float(scale)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        y: Tensor = self.body(x)
        if self.shortcut is not None:
            x = self.shortcut(x)
        traced: object = y
        if not isinstance(traced, fx.Proxy) and y.shape != x.shape:
            raise ArgumentError(
                f"Residual: `body` must keep the shape of its input; got {tuple(x.shape)} and "
                f"{tuple(y.shape)}. Bring the shapes together before the block, or by `shortcut`."
            )
        if self.mode == "add":
            return x + y * self.scale
        return x * (1 - self.scale) + y * self.scale

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"mode={self.mode!r}, scale={self.scale}"


register(Residual, structure=True)
