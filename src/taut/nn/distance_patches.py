"""`LinfDistance2d`: how far the patches of an image are from stored patches."""

import math
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import ArgumentError, check_count
from taut.linalg.linf_distances import linf_distance
from taut.linalg.rounding import exact_double
from taut.nn.distance import StoredPoints, corner_distances, largest_difference
from taut.rules import Call, Constants, FileSchema, Rounding, register
from taut.rules.shared_rules import output_shape


@final
class LinfDistance2d(StoredPoints):
    r"""`LinfDistance` of every patch of an image to the same stored patches, as a convolution.

    $$y_{o,s} = \max_{c, t} |x_{c, s + t} - w_{o, c, t}|$$

    1-Lipschitz in L-inf, whatever the weight: each output is 1-Lipschitz in its patch, and a patch
    moves by no more than the image. A border of zeros is part of the image.

    Args:
        in_channels: channels of the image.
        out_channels: number of stored patches.
        kernel_size: side of a patch.
        stride: distance of neighbouring patches.
        padding: width of the border of zeros.
        device: device of the weight.
        dtype: dtype of the weight.

    Attributes:
        exponent: exponent of the distance in training mode, as in `LinfDistance`; infinity by default.

    Example:
        >>> layer = LinfDistance2d(1, 4, kernel_size=3, padding=1)
        >>> layer(torch.zeros(2, 1, 5, 5)).shape
        torch.Size([2, 4, 5, 5])
        >>> taut.bound_lipschitz(layer, "linf", (1, 5, 5)).value
        1.0
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        for name, value in (
            ("in_channels", in_channels),
            ("out_channels", out_channels),
            ("kernel_size", kernel_size),
            ("stride", stride),
        ):
            check_count("LinfDistance2d", name, value)
        check_count("LinfDistance2d", "padding", padding, minimum=0)
        super().__init__(in_channels * kernel_size**2, out_channels, device=device, dtype=dtype)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def patches(self, x: Tensor) -> Tensor:
        """The patches of images `(batch, in_channels, height, width)`, `(batch, *places, entries)`."""
        sides = [
            (side + 2 * self.padding - self.kernel_size) // self.stride + 1 for side in x.shape[2:]
        ]
        columns = F.unfold(x, self.kernel_size, padding=self.padding, stride=self.stride)
        return columns.mT.unflatten(1, sides)

    def forward(self, x: Tensor) -> Tensor:
        """`(batch, in_channels, height, width) -> (batch, out_channels, ...)`."""
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            rule = f"must be (batch, {self.in_channels}, height, width)"
            raise ArgumentError("LinfDistance2d", "x", rule, f"shape {tuple(x.shape)}")
        p = self.exponent if self.training else math.inf
        return linf_distance(self.patches(x), self.weight, p).movedim(-1, 1)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}"
        )


def _each_output(call: Call) -> Constants:
    """Every output is 1-Lipschitz from L-inf, hence from every norm; patches share pixels."""
    exact_double("LinfDistance2d", call.module.weight)
    count = math.prod(output_shape(call))
    several = {"l1": float(count), "l2": math.nextafter(math.sqrt(count), math.inf), "linf": 1.0}
    return call.x.constants.through(lambda p, q: several[q.name])


def _image(call: Call, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
    patches = call.module.patches
    near, far = corner_distances(call, [patches(lower[0])], [patches(upper[0])])
    return near.movedim(-1, 1), far.movedim(-1, 1)


register(
    LinfDistance2d,
    proof="distances",
    constants=_each_output,
    # One subtraction; a maximum is exact.
    rounding=Rounding(
        lambda call: 1,
        lambda call, x: largest_difference(call, call.module.patches(x)).movedim(-1, 1),
        _each_output,
    ),
    image=_image,
    file=FileSchema(
        LinfDistance2d,
        dict.fromkeys(("in_channels", "out_channels", "kernel_size", "stride", "padding"), int),
        {"in_channels": 1, "out_channels": 1, "kernel_size": 1, "stride": 1, "padding": 0},
        lambda a: {"weight": (a["out_channels"], a["in_channels"] * a["kernel_size"] ** 2)},
    ),
)
