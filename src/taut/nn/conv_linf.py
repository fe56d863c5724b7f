r"""`LinfConv`: convolutions with every filter in the l1 ball."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from taut.linalg import project_l1_ball, project_l1_ball_by_sorting
from taut.linalg.transforms import call_uncompiled
from taut.nn.conv import ConstrainedConv
from taut.norms import LINF
from taut.rules import register
from taut.rules.convolution import convolution_schema

__all__ = ["LinfConv1d", "LinfConv2d"]


class _LinfConv(ConstrainedConv):
    input_norm = LINF
    output_norm = LINF
    projects_in_place = True

    def constrain(self, weight: Tensor) -> Tensor:
        """The nearest kernel with every filter in the l1 ball."""
        filters = weight.flatten(1)
        made = call_uncompiled(partial(project_l1_ball, filters))
        return weight if made is filters else made.view_as(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same, by sorting."""
        inside = 1 - 8 * torch.finfo(weight.dtype).eps
        return inside * project_l1_ball_by_sorting(weight.flatten(1)).view_as(weight)


@final
class LinfConv1d(_LinfConv):
    """`LinfConv2d` in one dimension.

    Example:
        >>> LinfConv1d(2, 3, 3)(torch.randn(1, 2, 5)).shape
        torch.Size([1, 3, 3])
    """

    _dims = 1


@final
class LinfConv2d(_LinfConv):
    r"""A convolution with L-inf norm at most 1: every filter has l1 norm at most 1.

    The induced norm is the largest $\sum |K|$ of an output channel, whatever stride, dilation,
    groups and padding: copies of inputs do not enlarge L-inf norms, so all modes of padding are
    fine. The parameter is kept feasible: after each step the nearest feasible kernel replaces it.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: of the windows.
        stride: of the windows.
        padding: per dimension, or "same" or "valid".
        dilation: the step between taps.
        groups: independent blocks of channels.
        bias: whether to add a learned offset.
        padding_mode: "zeros", "circular", "reflect" or "replicate".
        device: where the parameters live.
        dtype: float32 or float64.

    Example:
        >>> layer = LinfConv2d(3, 8, 3, padding=1, padding_mode="reflect")
        >>> bool((layer.effective_weight().double().abs().flatten(1).sum(1) <= 1).all())
        True
    """

    _dims = 2


for _layer in (LinfConv1d, LinfConv2d):
    register(_layer, file=convolution_schema(_layer))
