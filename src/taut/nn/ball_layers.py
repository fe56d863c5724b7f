r"""Layers whose rows, columns or filters lie in a unit ball: L-inf, L1 and mixed norms."""

from functools import partial
from typing import final

import torch
from torch import Tensor

from taut.errors import check_choice
from taut.linalg import (
    project_l1_ball,
    project_l1_ball_by_sorting,
    project_l2_ball,
    project_linf_ball,
)
from taut.linalg.func_transforms import call_uncompiled
from taut.nn.constrained import ConstrainedLinear
from taut.nn.conv import ConstrainedConv
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm
from taut.rules import FileSchema, register
from taut.rules.convolution import convolution_schema

_PROJECTIONS = {L1: project_l1_ball, L2: project_l2_ball, LINF: project_linf_ball}


def _project_traceable(weight: Tensor, dim: int = -1) -> Tensor:
    """The nearest point of the l1 ball by sorting, less what rounding may have added."""
    inside = 1 - 8 * torch.finfo(weight.dtype).eps
    return inside * project_l1_ball_by_sorting(weight, dim=dim)


class _BallLinear(ConstrainedLinear):
    """Rows or columns (`dim`) kept in, or mapped to, the unit ball of one norm."""

    _ball: Norm
    _dim = -1
    _shown = ("method",)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        method: str = "project",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_choice(type(self).__name__, "method", method, ("project", "forward"))
        self.method = method
        self.projects_in_place = method == "project"
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)

    def _draw_weight(self) -> None:
        r"""Orthonormal rows, or corners of the l1 ball spread evenly over what they read.

        A dense vector of l1 norm 1 averages its inputs, and next to nothing comes through. At a
        corner, $\pm e_j$, all of the slope is in use; a square weight is then a signed permutation.
        Where there are fewer vectors than entries, each takes an equal share of them.
        """
        if self._ball != L1 or self.weight.numel() == 0:
            return super()._draw_weight()
        vectors = self.weight.detach().movedim(self._dim, -1)
        count, length = vectors.shape
        share = max(1, length // count)
        rounds = -(-count * share // length)
        order = torch.cat([torch.randperm(length) for _ in range(rounds)])[: count * share]
        signs = torch.randint(2, (count, share)) * 2 - 1
        corners = torch.zeros(count, length, dtype=vectors.dtype)
        corners.scatter_(1, order.view(count, share), signs.to(vectors.dtype) / share)
        vectors.copy_(corners)

    def constrain(self, weight: Tensor) -> Tensor:
        """The nearest weight with every row or column in the ball."""
        project = _PROJECTIONS[self._ball]
        return call_uncompiled(partial(project, weight, dim=self._dim))

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same, by sorting where the ball is that of L1."""
        if self._ball == L1:
            return _project_traceable(weight, self._dim)
        return weight.clamp(-1, 1) if self._ball == LINF else project_l2_ball(weight, dim=self._dim)


@final
class LinfLinear(_BallLinear):
    r"""$y = x W^\top + b$ with $\|W\|_\infty \le 1$: every row has l1 norm at most 1.

    1-Lipschitz in L-inf. The weight is the nearest feasible one, and its norm as stored, summed as
    real numbers, is at most 1.

    Args:
        in_features, out_features, bias, device, dtype: those of `torch.nn.Linear`.
        method: `"project"` keeps the parameter feasible, pulling it back after each step (the
            paper's way); `"forward"` leaves it free and puts the projection in the graph.

    Example:
        >>> layer = LinfLinear(3, 2)
        >>> bool((layer.effective_weight().double().abs().sum(1) <= 1).all())
        True
    """

    input_norm = LINF
    output_norm = LINF
    _ball = L1


@final
class L1Linear(_BallLinear):
    r"""$y = x W^\top + b$ with $\|W\|_1 \le 1$: every column has l1 norm at most 1.

    1-Lipschitz in L1; the mirror image of `LinfLinear`, with the same arguments.

    Example:
        >>> layer = L1Linear(3, 2)
        >>> bool((layer.effective_weight().double().abs().sum(0) <= 1).all())
        True
    """

    input_norm = L1
    output_norm = L1
    _ball = L1
    _dim = -2


@final
class MixedLinear(_BallLinear):
    r"""$y = x W^\top + b$ with $\|W\|_{p,\infty} = \sup_{\|x\|_p \le 1} \|W x\|_\infty \le 1$.

    Every row has dual norm $\|w_i\|_q \le 1$, $1/p + 1/q = 1$. The first layer of the paper's
    universal networks (Theorem 3): it takes inputs measured in the p-norm to outputs measured in
    L-inf, and `LinfLinear` layers carry on from there.

    Args:
        p: norm of the input: `L1`, `L2`, `LINF` or their names.
        in_features, out_features, bias, method, device, dtype: those of `LinfLinear`.

    Example:
        >>> layer = MixedLinear(3, 2, p="l2")
        >>> bool((layer.effective_weight().double().norm(dim=1) <= 1).all())
        True
    """

    output_norm = LINF

    def __init__(
        self,
        in_features: int,
        out_features: int,
        p: NormLike,
        bias: bool = True,
        method: str = "project",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.input_norm = as_norm(p, "MixedLinear", "p")
        self._ball = self.input_norm.dual
        super().__init__(in_features, out_features, bias, method, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        return f"{super().extra_repr()}, p={str(self.input_norm)!r}"


class _LinfConv(ConstrainedConv):
    input_norm = LINF
    output_norm = LINF
    projects_in_place = True

    def constrain(self, weight: Tensor) -> Tensor:
        """The nearest kernel with every filter in the l1 ball."""
        return call_uncompiled(partial(project_l1_ball, weight.flatten(1))).view_as(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same, by sorting."""
        return _project_traceable(weight.flatten(1)).view_as(weight)


@final
class LinfConv1d(_LinfConv, dims=1):
    """`LinfConv2d` in one dimension."""


@final
class LinfConv2d(_LinfConv, dims=2):
    r"""A convolution with L-inf norm at most 1: every filter has l1 norm at most 1.

    The induced norm is the largest $\sum |K|$ of an output channel, whatever stride, dilation,
    groups and padding: copies of inputs do not enlarge L-inf norms, so all modes of padding are
    fine. The parameter is kept feasible: after each step the nearest feasible kernel replaces it.
    The arguments are those of `torch.nn.Conv2d`.

    Example:
        >>> layer = LinfConv2d(3, 8, 3, padding=1, padding_mode="reflect")
        >>> bool((layer.effective_weight().double().abs().flatten(1).sum(1) <= 1).all())
        True
    """


register(LinfLinear, file=FileSchema.dense(LinfLinear, method=str))
register(L1Linear, file=FileSchema.dense(L1Linear, method=str))
register(MixedLinear, file=FileSchema.dense(MixedLinear, method=str, p=str))
for _layer in _LinfConv.__subclasses__():
    register(_layer, file=convolution_schema(_layer))
