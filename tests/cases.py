"""One table: every public layer of `taut.nn` with its norms, a dense float64 oracle and flags.

The oracles are independent statements, in numpy and scipy, of what each layer computes. A new
layer gets a row here and inherits every contract of `test_contracts.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import nn

import taut.nn
from taut.norms import L1, L2, LINF, Norm

# (in_features, out_features)
SHAPES = {
    "tall": (5, 12),
    "wide": (12, 5),
    "square": (8, 8),
    "one_in": (1, 7),
    "one_out": (7, 1),
    "scalar": (1, 1),
}
# How far above 1 a norm may be seen: rounding of float32 weights and of the oracle.
ABOVE = 2e-6
# How far below 1 the singular values of an orthonormal layer may stay.
BELOW = {"eval": 1e-3, "train": 2e-2}


def operator_norm(weight: np.ndarray, p: Norm, q: Norm) -> float:
    """The norm of a matrix from `p` to `q`, by numpy in float64."""
    weight = np.asarray(weight, dtype=np.float64)
    assert np.isfinite(weight).all()
    if p == q == L2:
        return float(np.linalg.norm(weight, 2))
    if q == LINF:
        dual = {L1: np.inf, L2: 2, LINF: 1}[p]
        return float(np.linalg.norm(weight, dual, axis=1).max())
    assert p == q == L1
    return float(np.abs(weight).sum(0).max())


def nearest_orthonormal(weight: np.ndarray) -> np.ndarray:
    u, _, vh = np.linalg.svd(weight, full_matrices=False)
    return u @ vh


def bjorck_by_svd(weight: np.ndarray, num_steps: int) -> np.ndarray:
    """Order 1 after the scaling "gram", one singular value at a time."""
    u, s, vh = np.linalg.svd(weight, full_matrices=False)
    tall = weight if weight.shape[0] >= weight.shape[1] else weight.T
    s = s / math.sqrt(np.linalg.norm(tall.T @ tall, np.inf))
    for _ in range(num_steps):
        s = 1.5 * s - 0.5 * s**3
    return (u * s) @ vh


def _tall(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda w: function(w) if w.shape[0] >= w.shape[1] else function(w.T).T


@_tall
def gram_schmidt(weight: np.ndarray) -> np.ndarray:
    q, r = np.linalg.qr(weight)
    return q * np.sign(np.diag(r))


@_tall
def exponential_of_skew(weight: np.ndarray) -> np.ndarray:
    weight = weight * min(1, 64 / np.linalg.norm(weight))
    square = np.pad(weight, ((0, 0), (0, weight.shape[0] - weight.shape[1])))
    return scipy.linalg.expm(square - square.T)[:, : weight.shape[1]]


@_tall
def cayley_by_blocks(weight: np.ndarray) -> np.ndarray:
    weight = weight * min(1, 64 / np.linalg.norm(weight))
    n = weight.shape[1]
    a = weight[:n] - weight[:n].T + weight[n:].T @ weight[n:]
    inverse = np.linalg.inv(np.eye(n) + a)
    return np.concatenate([inverse @ (np.eye(n) - a), -2 * weight[n:] @ inverse])


def spectral_normalised(weight: np.ndarray) -> np.ndarray:
    return weight / np.linalg.norm(weight, 2)


def rows_rescaled(weight: np.ndarray) -> np.ndarray:
    """Rows divided by the roots of the row sums of the Gram matrix; zeros stay."""
    weight = weight / max(np.abs(weight).max(), 1e-300)
    sums = np.abs(weight @ weight.T).sum(1, keepdims=True)
    return np.where(sums > 0, weight / np.sqrt(np.where(sums > 0, sums, 1)), 0)


def rows_on_sphere(weight: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(weight, axis=1, keepdims=True)
    return weight / np.where(lengths > 0, lengths, 1)


def almost_orthonormal(weight: np.ndarray) -> np.ndarray:
    wide = weight.shape[0] <= weight.shape[1]
    return rows_rescaled(weight) if wide else rows_rescaled(weight.T).T


def spectral_clipped(weight: np.ndarray) -> np.ndarray:
    return weight / max(1.0, float(np.linalg.norm(weight, 2)))


def parseval_step(weight: np.ndarray, beta: float) -> np.ndarray:
    u, s, vh = np.linalg.svd(spectral_clipped(weight), full_matrices=False)
    return (u * ((1 + beta) * s - beta * s**3)) @ vh


def rows_in_ball(weight: np.ndarray, p: float) -> np.ndarray:
    """Each row's nearest point of the unit ball of the p-norm."""
    if p == 2:
        return weight / np.maximum(1, np.linalg.norm(weight, axis=1, keepdims=True))
    if p == math.inf:
        return np.clip(weight, -1, 1)
    rows = []
    for row in weight:
        low, high = 0.0, float(np.abs(row).max())
        if np.abs(row).sum() > 1:
            for _ in range(200):
                middle = (low + high) / 2
                above = np.maximum(np.abs(row) - middle, 0).sum() > 1
                low, high = (middle, high) if above else (low, middle)
        rows.append(np.sign(row) * np.maximum(np.abs(row) - low, 0))
    return np.stack(rows)


def columns_in_ball(weight: np.ndarray) -> np.ndarray:
    return rows_in_ball(weight.T, 1).T


@dataclass(frozen=True)
class DenseCase:
    """A dense layer.

    Attributes:
        make: `(in_features, out_features, **kwargs) -> layer`.
        evaluated: from the parameter to the weight that evaluation uses.
        trained: the same for training mode.
        orthonormal: in these modes ("eval", "train") all singular values are 1.
        kept: training writes the feasible weight into the parameter.
        twice: second derivatives by the weight are exact, too.
    """

    name: str
    make: Callable[..., Any]
    input_norm: Norm
    output_norm: Norm
    evaluated: Callable[[np.ndarray], np.ndarray]
    trained: Callable[[np.ndarray], np.ndarray]
    orthonormal: tuple[str, ...] = ()
    kept: bool = False
    twice: bool = True

    @property
    def layer(self) -> type[nn.Module]:
        return self.make.func if isinstance(self.make, partial) else self.make  # type: ignore

    def check_feasible(self, weight: torch.Tensor, mode: str) -> None:
        """Raises unless the weight is finite, of norm at most 1 and, where promised, orthonormal."""
        dense = weight.detach().double().numpy()
        assert operator_norm(dense, self.input_norm, self.output_norm) <= 1 + ABOVE
        if mode in self.orthonormal:
            assert np.linalg.svd(dense, compute_uv=False).min() >= 1 - BELOW[mode]

    def __str__(self) -> str:
        return self.name


def _rows(p: float) -> dict[str, Any]:
    return dict(evaluated=partial(rows_in_ball, p=p), trained=partial(rows_in_ball, p=p))


_COLUMNS: dict[str, Any] = dict(evaluated=columns_in_ball, trained=columns_in_ball)

DENSE = [
    DenseCase(
        "orthonormal-retract",
        taut.nn.OrthonormalLinear,
        L2,
        L2,
        evaluated=nearest_orthonormal,
        trained=nearest_orthonormal,
        orthonormal=("train", "eval"),
        kept=True,
    ),
    DenseCase(
        "orthonormal-bjorck",
        partial(taut.nn.OrthonormalLinear, method="bjorck"),
        L2,
        L2,
        evaluated=nearest_orthonormal,
        trained=partial(bjorck_by_svd, num_steps=3),
        orthonormal=("eval",),
    ),
    *(
        DenseCase(
            f"orthonormal-{method}",
            partial(taut.nn.OrthonormalLinear, method=method),
            L2,
            L2,
            evaluated=oracle,
            trained=oracle,
            orthonormal=("train", "eval"),
        )
        for method, oracle in (
            ("cayley", cayley_by_blocks),
            ("exponential", exponential_of_skew),
            ("qr", gram_schmidt),
            ("cholesky", gram_schmidt),
        )
    ),
    DenseCase(
        "spectral",
        taut.nn.SpectralLinear,
        L2,
        L2,
        evaluated=spectral_normalised,
        trained=spectral_normalised,
        # Power iteration points the gradient; its own derivative is not followed.
        twice=False,
    ),
    DenseCase(
        "aol",
        taut.nn.AOLLinear,
        L2,
        L2,
        evaluated=almost_orthonormal,
        trained=almost_orthonormal,
    ),
    DenseCase(
        "unit-norm",
        taut.nn.UnitNormLinear,
        L2,
        LINF,
        evaluated=rows_on_sphere,
        trained=rows_on_sphere,
    ),
    DenseCase(
        "parseval",
        partial(taut.nn.ParsevalLinear, beta=0.1),
        L2,
        L2,
        evaluated=spectral_clipped,
        trained=partial(parseval_step, beta=0.1),
        kept=True,
    ),
    DenseCase("linf-project", taut.nn.LinfLinear, LINF, LINF, **_rows(1), kept=True),
    DenseCase(
        "linf-forward", partial(taut.nn.LinfLinear, method="forward"), LINF, LINF, **_rows(1)
    ),
    DenseCase("l1-project", taut.nn.L1Linear, L1, L1, **_COLUMNS, kept=True),
    DenseCase("l1-forward", partial(taut.nn.L1Linear, method="forward"), L1, L1, **_COLUMNS),
    *(
        DenseCase(
            f"mixed-{p}-{method}",
            partial(taut.nn.MixedLinear, p=p, method=method),
            p,
            LINF,
            **_rows(p.dual.p),
            kept=method == "project",
        )
        for p in (L1, L2, LINF)
        for method in ("project", "forward")
    ),
]


def sort_groups(x: np.ndarray, group_size: int) -> np.ndarray:
    groups = x.reshape(*x.shape[:-1], group_size, x.shape[-1] // group_size)
    return np.sort(groups, axis=-2).reshape(x.shape)


def sort_pairs_descending(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
    return -np.sort(-groups, axis=-2).reshape(x.shape)


def largest_of_groups(x: np.ndarray, group_size: int) -> np.ndarray:
    return x.reshape(*x.shape[:-1], group_size, x.shape[-1] // group_size).max(-2)


def half_abs(x: np.ndarray) -> np.ndarray:
    folded = np.arange(x.shape[-1]) < x.shape[-1] // 2
    return np.where(folded, np.abs(x), x)


def reflect_pairs(x: np.ndarray, angle: float) -> np.ndarray:
    """By complex numbers: reflection in the line of direction exp(i angle / 2)."""
    a, b = np.split(x, 2, axis=-1)
    z = (a + 1j * b) * np.exp(-0.5j * angle)
    # In the frame of the line, whatever lies above it is mirrored below.
    z = (z.real - 1j * np.abs(z.imag)) * np.exp(0.5j * angle)
    return np.concatenate([z.real, z.imag], axis=-1)


@dataclass(frozen=True)
class ActivationCase:
    """A map without a constrained weight.

    Attributes:
        make: from the number of channels to the module.
        oracle: the same map of the last dimension, by numpy.
        isometry: all singular values of the Jacobian equal the constant.
        permutes: the output is a rearrangement of the input.
        group: a number that must divide the channels.
    """

    name: str
    make: Callable[[int], nn.Module]
    oracle: Callable[[np.ndarray], np.ndarray]
    layer: type[nn.Module]
    norms: tuple[Norm, ...] = (L1, L2, LINF)
    constant: float = 1.0
    isometry: bool = True
    permutes: bool = False
    group: int = 1

    def __str__(self) -> str:
        return self.name


ACTIVATIONS = [
    ActivationCase(
        "maxmin",
        lambda width: taut.nn.MaxMin(),
        sort_pairs_descending,
        taut.nn.MaxMin,
        permutes=True,
        group=2,
    ),
    *(
        ActivationCase(
            f"groupsort{size}",
            lambda width, size=size: taut.nn.GroupSort(size),
            partial(sort_groups, group_size=size),
            taut.nn.GroupSort,
            permutes=True,
            group=size,
        )
        for size in (1, 2, 3, 4, 5, 7, 8, 16, 17)
    ),
    ActivationCase(
        "fullsort",
        lambda width: taut.nn.FullSort(),
        partial(np.sort, axis=-1),
        taut.nn.FullSort,
        permutes=True,
    ),
    *(
        ActivationCase(
            f"maxout{size}",
            lambda width, size=size: taut.nn.Maxout(size),
            partial(largest_of_groups, group_size=size),
            taut.nn.Maxout,
            isometry=False,
            group=size,
        )
        for size in (2, 3)
    ),
    ActivationCase(
        "pair-length",
        lambda width: taut.nn.PairLength(),
        lambda x: np.hypot(*np.split(x, 2, axis=-1)),
        taut.nn.PairLength,
        norms=(L2,),
        isometry=False,
        group=2,
    ),
    ActivationCase("half-abs", lambda width: taut.nn.HalfAbs(), half_abs, taut.nn.HalfAbs),
    ActivationCase("abs", lambda width: taut.nn.Abs(), np.abs, taut.nn.Abs),
    *(
        ActivationCase(
            f"householder-{angle}",
            lambda width, angle=angle: taut.nn.Householder(width, angle),
            partial(reflect_pairs, angle=angle),
            taut.nn.Householder,
            norms=(L2,),
            group=2,
        )
        for angle in (0.0, 0.7, math.pi / 2, 3.0, -2.0)
    ),
    ActivationCase(
        "scale", lambda width: taut.nn.Scale(-2.5), lambda x: -2.5 * x, taut.nn.Scale, constant=2.5
    ),
]


@dataclass(frozen=True)
class ConvCase:
    """A constrained convolution.

    Attributes:
        make: `(in_channels, out_channels, kernel_size, **options) -> layer`.
        dims: spatial dimensions.
        norm: of input and output.
        orthonormal: all singular values are 1 on a circle.
        kept: training writes the feasible weight into the parameter.
    """

    layer: type[nn.Module]
    dims: int
    norm: Norm = L2
    transposed: bool = False
    orthonormal: bool = False
    kept: bool = False

    def make(self, *args: Any, **options: Any) -> Any:
        return self.layer(*args, **options)

    def dense(self, layer: Any, size: tuple[int, ...]) -> np.ndarray:
        """The Jacobian, unrolled: images of the basis vectors, exact in any dtype."""
        n = layer.in_channels * math.prod(size)
        basis = torch.eye(n, dtype=layer.weight.dtype).reshape(n, layer.in_channels, *size)
        with torch.no_grad():
            zero = layer(torch.zeros_like(basis[:1]))
            return (layer(basis) - zero).double().reshape(n, -1).T.numpy()

    def check_feasible(self, layer: Any, size: tuple[int, ...]) -> None:
        """Raises unless the map is finite and 1-Lipschitz."""
        assert operator_norm(self.dense(layer, size), self.norm, self.norm) <= 1 + ABOVE

    def __str__(self) -> str:
        return self.layer.__name__


CONVOLUTIONS = [
    *(
        ConvCase(getattr(taut.nn, f"{kind}Conv{turn}{dims}d"), dims, transposed=bool(turn))
        for kind in ("Spectral", "AOL")
        for dims in (1, 2, 3)
        for turn in ("", "Transpose")
    ),
    *(
        ConvCase(
            getattr(taut.nn, f"OrthonormalConv{turn}{dims}d"),
            dims,
            transposed=bool(turn),
            orthonormal=True,
            kept=True,
        )
        for dims in (1, 2, 3)
        for turn in ("", "Transpose")
    ),
    ConvCase(taut.nn.LinfConv1d, 1, LINF, kept=True),
    ConvCase(taut.nn.LinfConv2d, 2, LINF, kept=True),
]

# Layers without a constrained weight whose contracts stand in tests/nn/test_parts.py, each with a way
# to make one and the shape of an input.
PARTS: dict[type[nn.Module], tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    taut.nn.Centering: (lambda: taut.nn.Centering(4), (3, 4)),
    taut.nn.ChannelShift2d: (taut.nn.ChannelShift2d, (2, 6, 3, 3)),
    taut.nn.Clip: (lambda: taut.nn.Clip(-0.5, 1.5), (3, 4)),
    taut.nn.ConeCritic: (lambda: taut.nn.ConeCritic(5, 4), (3, 4)),
    taut.nn.InvertibleDownsampling2d: (lambda: taut.nn.InvertibleDownsampling2d(2), (2, 2, 4, 4)),
    taut.nn.InvertibleUpsampling2d: (lambda: taut.nn.InvertibleUpsampling2d(2), (2, 4, 2, 2)),
    taut.nn.LayerCentering: (taut.nn.LayerCentering, (3, 4)),
    taut.nn.LipschitzBatchNorm: (lambda: taut.nn.LipschitzBatchNorm(4), (3, 4)),
    taut.nn.LPReLU: (lambda: taut.nn.LPReLU(4), (3, 4)),
    taut.nn.SoftHuber: (taut.nn.SoftHuber, (3, 4)),
    taut.nn.SymmetricPad1d: (lambda: taut.nn.SymmetricPad1d((2, 1)), (2, 2, 3)),
    taut.nn.SymmetricPad2d: (lambda: taut.nn.SymmetricPad2d(1), (2, 2, 3, 3)),
    taut.nn.SymmetricPad3d: (lambda: taut.nn.SymmetricPad3d(1), (2, 1, 2, 2, 3)),
    taut.nn.ScaledAvgPool2d: (lambda: taut.nn.ScaledAvgPool2d(2), (2, 2, 4, 4)),
    taut.nn.LinfDistance: (lambda: taut.nn.LinfDistance(4, 5), (3, 4)),
    taut.nn.LinfDistance2d: (lambda: taut.nn.LinfDistance2d(2, 3, 2, padding=1), (2, 2, 3, 3)),
    taut.nn.SortDistance: (lambda: taut.nn.SortDistance(4, 5, q=1.0), (3, 4)),
    taut.nn.AdaptiveL2Pool2d: (lambda: taut.nn.AdaptiveL2Pool2d((2, 3)), (2, 2, 3, 4)),
    taut.nn.ScaledAdaptiveAvgPool2d: (
        lambda: taut.nn.ScaledAdaptiveAvgPool2d((2, 3)),
        (2, 2, 3, 4),
    ),
    taut.nn.L2Pool2d: (lambda: taut.nn.L2Pool2d(2), (2, 2, 4, 4)),
    taut.nn.PotentialStep: (lambda: taut.nn.PotentialStep(4, 6), (3, 4)),
    taut.nn.SLLResidual: (lambda: taut.nn.SLLResidual(4, 6), (3, 4)),
    taut.nn.PotentialStep2d: (lambda: taut.nn.PotentialStep2d(2, 3), (2, 2, 3, 3)),
    taut.nn.SLLResidual2d: (lambda: taut.nn.SLLResidual2d(2, 3), (2, 2, 3, 3)),
    taut.nn.CPLResidual2d: (lambda: taut.nn.CPLResidual2d(2, 3), (2, 2, 3, 3)),
    taut.nn.SandwichLinear: (lambda: taut.nn.SandwichLinear(4, 3), (3, 4)),
    taut.nn.SandwichStep: (lambda: taut.nn.SandwichStep(4, 3), (3, 4)),
    taut.nn.CPLResidual: (lambda: taut.nn.CPLResidual(4, 3), (3, 4)),
    taut.nn.Monotone: (lambda: taut.nn.Monotone(taut.nn.mlp([4, 6, 2]), [1, 0, -1, 0]), (3, 4)),
    taut.nn.Residual: (lambda: taut.nn.Residual(taut.nn.OrthonormalLinear(4, 4)), (3, 4)),
}


@dataclass(frozen=True)
class AnyCase:
    """Any public layer, in float64, with the shape of an input."""

    name: str
    make_layer: Callable[[], nn.Module]
    shape: tuple[int, ...]

    def make(self) -> Any:
        return self.make_layer().double()

    def __str__(self) -> str:
        return self.name


EVERY_LAYER = [
    *(AnyCase(str(case), partial(case.make, 5, 4), (3, 5)) for case in DENSE),
    *(
        AnyCase(str(case), partial(case.make, 2 * case.group), (3, 2 * case.group))
        for case in ACTIVATIONS
    ),
    *(
        AnyCase(str(case), partial(case.make, 2, 3, 2), (2, 2, *(3,) * case.dims))
        for case in CONVOLUTIONS
    ),
    *(
        AnyCase(
            f"{case}-circular",
            partial(case.make, 2, 2, 3, padding="same", padding_mode="circular"),
            (2, 2, *(3,) * case.dims),
        )
        for case in CONVOLUTIONS
        if not case.transposed
    ),
    *(AnyCase(layer.__name__, *part) for layer, part in PARTS.items()),
]
