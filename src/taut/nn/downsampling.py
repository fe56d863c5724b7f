"""Fewer pixels and more channels, or back: nothing is lost."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, check_count
from taut.rules import FileSchema, register

__all__ = ["InvertibleDownsampling2d", "InvertibleUpsampling2d"]


@final
class InvertibleDownsampling2d(nn.Module):
    """Turns each block of `factor * factor` pixels into channels: a permutation of the entries.

    An isometry in every norm. `torch.nn.PixelUnshuffle` is the same map; this one explains sizes
    that it cannot take, and undoes itself.

    Args:
        factor: the side of a block.

    Example:
        >>> layer = InvertibleDownsampling2d(2)
        >>> x = torch.randn(1, 3, 4, 6)
        >>> layer(x).shape, torch.equal(layer.inverse(layer(x)), x)
        (torch.Size([1, 12, 2, 3]), True)
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        check_count("InvertibleDownsampling2d", "factor", factor)
        self.factor = int(factor)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., c, h, w)` to `(..., c * factor**2, h / factor, w / factor)`."""
        if x.dim() < 3:
            raise ArgumentError(
                "InvertibleDownsampling2d: the input must be (..., channels, height, width); got "
                f"shape {tuple(x.shape)}. Use unflatten to make images of rows."
            )
        if x.shape[-2] % self.factor or x.shape[-1] % self.factor:
            raise ArgumentError(
                f"InvertibleDownsampling2d: `factor` must divide height and width; got "
                f"factor={self.factor}, size {tuple(x.shape[-2:])}. Pad the input with zeros first."
            )
        return F.pixel_unshuffle(x, self.factor)

    def inverse(self, y: Tensor) -> Tensor:
        """What `forward` has made `y` of."""
        if y.dim() < 3 or y.shape[-3] % self.factor**2:
            raise ArgumentError(
                "InvertibleDownsampling2d.inverse: `y` must be (..., channels, height, width) with "
                f"channels in multiples of {self.factor**2}; got shape {tuple(y.shape)}."
            )
        return F.pixel_shuffle(y, self.factor)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"factor={self.factor}"


@final
class InvertibleUpsampling2d(nn.Module):
    """Turns each `factor * factor` channels into a block of pixels: undoes the downsampling.

    A permutation of the entries, so an isometry in every norm.

    Args:
        factor: the side of a block.

    Example:
        >>> x = torch.randn(1, 3, 4, 6)
        >>> torch.equal(InvertibleUpsampling2d(2)(InvertibleDownsampling2d(2)(x)), x)
        True
    """

    def __init__(self, factor: int) -> None:
        super().__init__()
        check_count("InvertibleUpsampling2d", "factor", factor)
        self.factor = int(factor)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(..., c * factor**2, h, w)` to `(..., c, h * factor, w * factor)`."""
        if x.dim() < 3 or x.shape[-3] % self.factor**2:
            raise ArgumentError(
                "InvertibleUpsampling2d: the input must be (..., channels, height, width) with "
                f"channels in multiples of {self.factor**2}; got shape {tuple(x.shape)}."
            )
        return F.pixel_shuffle(x, self.factor)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"factor={self.factor}"


register(
    InvertibleUpsampling2d,
    call=lambda m: (torch.ops.aten.pixel_shuffle.default, {"upscale_factor": m.factor}),
    file=FileSchema(InvertibleUpsampling2d, {"factor": int}),
)
register(
    InvertibleDownsampling2d,
    call=lambda m: (torch.ops.aten.pixel_unshuffle.default, {"downscale_factor": m.factor}),
    file=FileSchema(InvertibleDownsampling2d, {"factor": int}),
)
