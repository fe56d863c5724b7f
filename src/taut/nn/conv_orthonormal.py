r"""`OrthonormalConv`: convolutions that keep the length of their inputs, kept on the manifold.

The kernel is a product: one orthonormal matrix over a window of taps (`(out, in * taps)`), as many as
are read by no two outputs, and, for every tap by which the kernel is longer, a convolution with the two
taps $P$ and $I - P$, $P = UU^\top$ (`taut.linalg.block_convolution`). The matrices themselves are the
parameter. They are pulled back to orthonormality after each step, and derivatives are projected on the
tangent space, as in `OrthonormalLinear`: nothing is differentiated through an iteration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.linalg import block_convolution, follow_tangent, retract_stack
from taut.linalg.func_transforms import call_on_numbers, is_wrapped
from taut.nn.conv import ConstrainedConv, TransposedConv
from taut.norms import L2
from taut.rules import register
from taut.rules.convolution import convolution_schema


@dataclass(frozen=True)
class Factors:
    """How the numbers of the parameter are laid out: per group a matrix, then the planes."""

    groups: int  # independent blocks of channels
    rows: int  # output channels of a block, of the plain convolution
    columns: int  # input channels of a block
    taps: tuple[int, ...]  # the sizes of the kernel
    window: tuple[int, ...]  # the sizes of the window that the matrix spans

    @classmethod
    def of(
        cls,
        kernel: tuple[int, ...],
        groups: int,
        stride: Sequence[int],
        dilation: Sequence[int] | None = None,
    ) -> Self:
        r"""Those of a kernel of this shape, `(rows * groups, columns, *taps)`.

        Tap `j` of output `t` reads $st + dj$. With $g = \gcd(s, d)$, the reads of taps
        $j < s/g$ are all different, and tap $j + s/g$ reads what tap $j$ of a later output reads.
        """
        rows, columns, *taps = kernel
        steps = zip(taps, stride, dilation or (1,) * len(taps), strict=True)
        window = tuple(min(k, s // math.gcd(s, d)) for k, s, d in steps)
        return cls(groups, rows // groups, columns, tuple(taps), window)

    @property
    def widens(self) -> bool:
        """Whether the short convolutions come after the matrix, where there are more channels."""
        whole = all(k % s == 0 for k, s in zip(self.taps, self.window, strict=True))
        return whole and self.rows > self.columns * math.prod(self.window)

    @property
    def dims(self) -> list[int]:
        """The dimension of each short convolution, in turn."""
        pairs = list(zip(self.taps, self.window, strict=True))
        left = [k // s - 1 if self.widens else k - s for k, s in pairs]
        return [dim for turn in range(max(left)) for dim, n in enumerate(left) if turn < n]

    @property
    def matrix_shape(self) -> tuple[int, int, int]:
        """Of the matrices, `(groups, out, in * cells)`."""
        return self.groups, self.rows, self.columns * math.prod(self.window)

    @property
    def planes_shape(self) -> tuple[int, int, int, int]:
        """Of the planes, `(groups, number, channels, rank)`."""
        channels = self.rows if self.widens else self.columns
        return self.groups, len(self.dims), channels, channels // 2

    @property
    def numel(self) -> int:
        """How many numbers there are in all."""
        return math.prod(self.matrix_shape) + math.prod(self.planes_shape)

    def split(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """The matrices and the planes, as views."""
        size = math.prod(self.matrix_shape)
        return flat[:size].view(self.matrix_shape), flat[size:].view(self.planes_shape)

    def draw(self, flat: Tensor) -> None:
        """Writes random orthonormal factors."""
        for part in self.split(flat.detach()):
            for matrix in part.flatten(0, -3):
                if matrix.numel():
                    nn.init.orthogonal_(matrix)

    def random_kernel(self, like: Tensor) -> Tensor:
        """A random orthonormal kernel, of the dtype and on the device of a tensor."""
        flat = like.detach().new_empty(self.numel)
        self.draw(flat)
        return self.kernel(*self.split(flat))

    def retract(self, flat: Tensor) -> Tensor:
        """All of them orthonormal; the argument itself if they are."""
        matrix, planes = self.split(flat)
        pulled = retract_stack(matrix), retract_stack(planes.flatten(0, 1))
        pairs = zip(pulled, (matrix, planes), strict=True)
        same = all(a.data_ptr() == b.data_ptr() for a, b in pairs)
        return flat if same else torch.cat([part.reshape(-1) for part in pulled])

    def kernel(self, matrix: Tensor, planes: Tensor) -> Tensor:
        """The kernel `(groups * rows, columns, *taps)`."""
        num_dims = len(self.taps)
        spread = matrix.view(self.groups, self.rows, self.columns, *self.window)
        inner = range(3, 3 + num_dims)
        order = (0, *inner, 2, 1) if self.widens else (0, *inner, 1, 2)
        steps = self.window if self.widens else (1,) * num_dims
        made = block_convolution(spread.permute(order), planes, self.dims, steps)
        if self.widens:
            made = made.transpose(-1, -2)
        back = (0, 1 + num_dims, 2 + num_dims, *range(1, 1 + num_dims))
        return made.permute(back).flatten(0, 1)


class _OrthonormalConv(ConstrainedConv):
    input_norm = L2
    output_norm = L2
    projects_in_place = True

    @property
    def factors(self) -> Factors:
        """The layout of the parameter, which holds the factors of the kernel one after the other."""
        return Factors.of(self.kernel_shape, self.groups, self.stride, self.dilation)

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.factors.numel,)

    def _check_shape(self) -> None:
        _check_shape(type(self).__name__, self.factors, self.stride, self.dilation)

    def _draw_weight(self) -> None:
        self.factors.draw(self.weight)

    def constrain(self, weight: Tensor) -> Tensor:
        """The nearest orthonormal factors."""
        return self.factors.retract(weight)

    def constrain_traceable(self, weight: Tensor) -> Tensor:
        """The same, by singular value decompositions."""
        parts = []
        for part in self.factors.split(weight):
            u, _, vh = torch.linalg.svd(part.double(), full_matrices=False)
            parts.append((u @ vh).reshape(-1))
        return torch.cat(parts)

    def _weight_in_use(self) -> Tensor:
        weight = self.weight
        if self._has_no_numbers():
            return self._made(*self.factors.split(self.constrain_traceable(weight)))
        if torch.compiler.is_dynamo_compiling():
            exact = self.constrain_traceable(weight.detach())
            if self._may_write():
                with torch.no_grad():
                    weight.copy_(exact)
            return self._kernel_by(weight, exact)
        point = self._feasible_numbers()
        derived = weight.requires_grad and torch.is_grad_enabled()
        if is_wrapped(weight) or (derived and self.training):
            return self._kernel_near(weight, point)
        value = call_on_numbers(self._kernel_at, point)
        if not derived:
            return value
        return self._with_derivative(value, partial(self._kernel_near, point=point))

    def evaluation_weight(self) -> Tensor:
        """A copy of the kernel that evaluation uses now, in whatever mode the layer is, as numbers."""
        return call_on_numbers(self._kernel_at, super().evaluation_weight()).clone()

    def _kernel_at(self, point: Tensor) -> Tensor:
        return self._derived.recall_or_make(point, lambda point: self._kernel_near(point, point))

    def _kernel_near(self, weight: Tensor, point: Tensor) -> Tensor:
        """The kernel at `point`, with the derivatives of tangent directions for `weight`."""
        # What single precision took from the factors is given back before they are multiplied.
        return self._kernel_by(weight, call_on_numbers(self.factors.retract, point.double()))

    def _kernel_by(self, weight: Tensor, exact: Tensor) -> Tensor:
        held, near = self.factors.split(weight.double()), self.factors.split(exact)
        return self._made(*(follow_tangent(b, a) for a, b in zip(held, near, strict=True)))

    def _made(self, matrix: Tensor, planes: Tensor) -> Tensor:
        # Single precision moves the norm by about one unit of rounding, up or down.
        margin = max(2 * torch.finfo(self.weight.dtype).eps, 1e-13)
        room = (1 - margin) / self.padding_norm()
        return (self.factors.kernel(matrix, planes) * room).to(self.weight.dtype)


@final
class OrthonormalConv1d(_OrthonormalConv, dims=1):
    """`OrthonormalConv2d` in one dimension."""


@final
class OrthonormalConv2d(_OrthonormalConv, dims=2):
    r"""A convolution with all singular values 1: 1-Lipschitz in L2, and an isometry where it can be.

    On a circle (`padding_mode="circular"` with `padding="same"`, or with a stride and a padding that
    give `size / stride` outputs) the map is orthogonal to 1e-5: it keeps lengths if `out_channels`
    is at least `in_channels` times the cells of a stride, else it keeps those of gradients. With
    zeros beyond the input it is a block of such a map: 1-Lipschitz, and some length is lost at the
    border. That holds at any learning rate, with any optimiser, for every shape accepted.

    The parameter `weight` is flat and holds the factors of the kernel; `effective_weight()` is the
    kernel.

    The arguments are those of `torch.nn.Conv2d`, with these limits:

    Args:
        stride: a divisor of the input size where the padding is circular.
        kernel_size, dilation: if the kernel is shorter than the stride, or the dilation has a divisor
            in common with it, some inputs are read by no window. Then `out_channels` must be at most
            `in_channels` times the taps of distinct reads, and gradients keep their length.
        padding_mode: "zeros" or "circular"; for "reflect", "replicate" and "symmetric", which copy
            inputs, the kernel is divided by the enlargement (`taut.linalg.bound_padding`).

    Example:
        >>> layer = OrthonormalConv2d(3, 16, 3, padding="same", padding_mode="circular", bias=False)
        >>> x = torch.randn(2, 3, 8, 8)
        >>> torch.allclose(layer(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-5)
        True
    """


@final
class OrthonormalConv3d(_OrthonormalConv, dims=3):
    """`OrthonormalConv2d` in three dimensions."""


@final
class OrthonormalConvTranspose1d(TransposedConv, _OrthonormalConv, dims=1):
    """The adjoint of `OrthonormalConv1d`, with torch's arguments for transposed convolutions."""


@final
class OrthonormalConvTranspose2d(TransposedConv, _OrthonormalConv, dims=2):
    """The adjoint of `OrthonormalConv2d`, with torch's arguments for transposed convolutions."""


@final
class OrthonormalConvTranspose3d(TransposedConv, _OrthonormalConv, dims=3):
    """The adjoint of `OrthonormalConv3d`, with torch's arguments for transposed convolutions."""


def _check_shape(
    subject: str, factors: Factors, stride: Sequence[int], dilation: Sequence[int]
) -> None:
    """Raises for shapes of which no kernel is orthonormal: unread inputs, and more outputs than read."""
    read_all = all(w == s for w, s in zip(factors.window, stride, strict=True))
    most = factors.columns * math.prod(factors.window)
    if not read_all and factors.rows > most:
        raise ArgumentError(
            subject,
            "out_channels",
            rule=f"must be at most {most * factors.groups} (in_channels, where transposed) if some "
            "inputs are read by no window: what keeps gradients must not have more outputs than it "
            "reads",
            got=f"{factors.rows * factors.groups}, kernel_size={factors.taps}, "
            f"stride={tuple(stride)}, dilation={tuple(dilation)}",
            remedy="Use a kernel_size of at least the stride and a dilation without a divisor in common "
            "with it, fewer channels, or SpectralConv.",
        )


def _factors_shape(a: dict[str, Any]) -> tuple[int, ...]:
    """The parameter's shape from the arguments of a layer."""
    factors = Factors.of(a["kernel"], a["groups"], a["stride"], a["dilation"])
    _check_shape("OrthonormalConv", factors, a["stride"], a["dilation"])
    return (factors.numel,)


for _layer in _OrthonormalConv.__subclasses__():
    register(_layer, file=convolution_schema(_layer, _factors_shape))
