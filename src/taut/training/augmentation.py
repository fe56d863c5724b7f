"""Random shifts and mirroring of training images."""

from typing import get_args

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from taut.errors import check_choice
from taut.names import AugmentationName
from taut.training.config_fields import config_error

AUGMENTATIONS: tuple[AugmentationName, ...] = get_args(AugmentationName)


def augment(x: Tensor, kind: AugmentationName, generator: Generator) -> Tensor:
    """Shifts each image at random, and with `"crop-flip"` mirrors half of them.

    The image is padded with zeros, by an eighth of the shorter side (4 pixels for 32, as is usual for
    CIFAR, 3 for 28, 1 for 8), and cropped to its own size at a uniformly random position. With `"shift"`
    the padding is one pixel and repeats the border.

    Args:
        x: `(n, channels, height, width)`; not changed.
        kind: `"none"`, `"crop"`, `"crop-flip"` or `"shift"`.
        generator: source of randomness, on the CPU.

    Returns:
        As `x`; `x` itself for `"none"`.

    Example:
        >>> moved = augment(torch.ones(2, 1, 8, 8), "crop", torch.Generator().manual_seed(0))
        >>> moved.shape, bool(moved.sum() <= 2 * 64)
        (torch.Size([2, 1, 8, 8]), True)
    """
    check_choice("augment", "kind", kind, AUGMENTATIONS)
    if kind == "none":
        return x
    check_augmentation(kind, tuple(x.shape[1:]))
    count, _, height, width = x.shape
    border = 1 if kind == "shift" else min(height, width) // 8
    row, column = torch.randint(2 * border + 1, (2, count), generator=generator).to(x.device)
    padded = F.pad(x, (border,) * 4, mode="replicate" if kind == "shift" else "constant")
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    moved = windows[torch.arange(count, device=x.device), :, row, column]
    if kind == "crop-flip":
        mirrored = torch.randint(2, (count, 1, 1, 1), generator=generator).bool()
        moved = torch.where(mirrored.to(x.device), moved.flip(-1), moved)
    return moved


def check_augmentation(kind: str, shape: tuple[int, ...]) -> None:
    """Raises unless inputs of this shape can be augmented."""
    if kind != "none" and len(shape) != 3:
        rule = "must be 'none' for inputs that are not images"
        raise config_error("augment", rule, f"augment={kind!r} and inputs of shape {shape}")
