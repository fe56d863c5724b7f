"""Symmetric padding, which torch does not have: the input mirrored at its ends, border included."""

from collections.abc import Sequence
from typing import final

from torch import Tensor, nn

from taut import functional
from taut.linalg.convolution_axis import per_dimension
from taut.rules import FileSchema, register
from taut.rules.file_schema import Sizes


class _SymmetricPad(nn.Module):
    _dims: int

    def __init_subclass__(cls, dims: int) -> None:
        super().__init_subclass__()
        cls._dims = dims

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        name, sides = type(self).__name__, 2 * self._dims
        self.padding = per_dimension(name, "padding", padding, sides, minimum=0)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(batch, channels, *sizes)` to larger sizes."""
        return functional.pad(x, self.padding, "symmetric")

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{self.padding}"


@final
class SymmetricPad1d(_SymmetricPad, dims=1):
    """`SymmetricPad2d` in one dimension."""


@final
class SymmetricPad2d(_SymmetricPad, dims=2):
    r"""Mirrors an image at its borders, the border pixels included.

    Each pixel is copied up to $\mu = 4$ times, so the constant is 2 in L2, 4 in L1 and 1 in L-inf (more
    where the padding of two sides meets); `taut.linalg.bound_padding` proves it for every size.

    Args:
        padding: as in `torch.nn.ReflectionPad2d`, at most the size of the input.

    Example:
        >>> SymmetricPad2d((1, 0, 0, 0))(torch.tensor([[[[1.0, 2.0]]]]))
        tensor([[[[1., 1., 2.]]]])
    """


@final
class SymmetricPad3d(_SymmetricPad, dims=3):
    """`SymmetricPad2d` in three dimensions."""


SYMMETRIC_PADS = {1: SymmetricPad1d, 2: SymmetricPad2d, 3: SymmetricPad3d}
for _dims, _layer in SYMMETRIC_PADS.items():
    register(
        _layer,
        call=lambda m: (functional.pad, {"pad": list(m.padding), "mode": "symmetric"}),
        file=FileSchema(_layer, {"padding": Sizes(2 * _dims, 0)}),
    )
