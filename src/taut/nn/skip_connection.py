"""`Residual`: a body and a shortcut, with a constant that follows from the body's."""

from typing import final

import torch
from torch import Tensor, fx, nn

from taut.errors import ArgumentError, check_choice, check_finite, check_within
from taut.rules import register

_HALF = 0.7071067811865475  # just below the root of 1/2


@final
class Residual(nn.Module):
    r"""A weighted sum of the input and what `body` makes of it.

    - `"average"`: $(1 - s)\,x + s f(x)$ with $s \in [0, 1]$, by default one half: 1-Lipschitz if
      the body is;
    - `"add"`: $x + s f(x)$, by default $s = 1$: Lipschitz with $1 + |s| L$ for a body with constant
      $L$, as in residual networks;
    - `"concat"`: $[x, f(x)] / \sqrt2$ side by side along dimension 1, so twice the channels: 1-Lipschitz
      if the body is, and an isometry with it. `PairLength` behind it gives their root mean square.

    The audit looks inside and proves the constant from that of the body.

    Args:
        body: a module that keeps the shape of its input, or makes the shape of the shortcut.
        mode: `"average"`, `"add"` or `"concat"`.
        scale: the weight `s` of the body; None for the default of the mode. None for `"concat"`.
        learned: whether the weight of an average is a parameter, `weight`, held in [0, 1].
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
        *,
        learned: bool = False,
    ) -> None:
        super().__init__()
        check_choice("Residual", "mode", mode, ("average", "add", "concat"))
        if scale is None:
            scale = {"average": 0.5, "add": 1.0, "concat": _HALF}[mode]
        check_finite("Residual", "scale", scale)
        if mode == "average":
            check_within("Residual", "scale", scale, "[0, 1]", "Use mode='add' for other weights.")
        if learned and mode != "average":
            rule = "needs mode='average', whose constant no weight enlarges"
            raise ArgumentError("Residual", "learned", rule, f"mode={mode!r}")
        self.body = body
        self.shortcut = shortcut
        self.mode = mode
        self._scale = float(scale)
        self.register_parameter(
            "weight", nn.Parameter(torch.tensor(self._scale)) if learned else None
        )

    weight: nn.Parameter | None

    @property
    def scale(self) -> float:
        """The weight of the body in evaluation."""
        return self._scale if self.weight is None else float(self.weight.detach().clamp(0, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `x` to the same shape."""
        y: Tensor = self.body(x)
        if self.shortcut is not None:
            x = self.shortcut(x)
        traced: object = y
        if not isinstance(traced, fx.Proxy) and y.shape != x.shape:
            got = f"{tuple(x.shape)} and {tuple(y.shape)}"
            remedy = "Bring the shapes together before the block, or by `shortcut`."
            raise ArgumentError("Residual", "body", "must keep the shape of its input", got, remedy)
        if self.mode == "concat":
            return torch.cat([x, y], 1) * self._scale
        if self.mode == "add":
            return x + y * self._scale
        share = self._scale if self.weight is None else self.weight.clamp(0, 1)
        return x * (1 - share) + y * share

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        shown = "" if self.weight is None else ", learned=True"
        return f"mode={self.mode!r}, scale={self.scale}{shown}"


register(
    Residual,
    structure=True,
    # In evaluation a learned weight is a number.
    plain=lambda m: m if m.weight is None else Residual(m.body, m.mode, m.scale, m.shortcut),
)
