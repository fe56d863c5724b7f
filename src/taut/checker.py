r"""Checks the Lipschitz constant that a saved network states, with numpy and nothing else.

`python checker.py FILE [SHA256]` reads what `taut.save` wrote, takes the *witness* of each layer (a
number that bounds its L2 norm, and how to see it), proves it for the stored weights as real numbers,
rounding included, and composes the layers. It shares no code with the prover. Theorems: page "Saved
files". Constants of a layer are three numbers, in the order L1, L2, L-inf.
"""

import hashlib
import itertools
import json
import math
import re
import sys
from collections import Counter, namedtuple
from fractions import Fraction
from typing import Any

import numpy as np

__all__ = ["NotProven", "Refused", "check", "prove"]

U = 2.0**-53 * (1 + 1e-6)  # so that k U >= ku / (1 - ku) for u = 2^-53, up to k = 10^9
NORMS = ("l1", "l2", "linf")
LOOSE = 1 - Fraction(1, 10**6)  # what is stated is tight to six digits
MOST_FREQUENCIES, MOST_TAPS, MOST_LAYERS, DEEPEST = 2**22, 2**10, 1000, 32
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I8": "<i1"}

# Layers, with their largest slope where it is not 1 and without their number of dimensions; arguments.
TABLE = """
Identity Abs ReLU ReLU6 Tanh LogSigmoid Softsign Tanhshrink Sigmoid=0.25 SELU=1.7581 SiLU=1.09984
Mish=1.0885 Hardsigmoid=0.166667 Hardswish=1.500001:; ELU CELU=1.000001: alpha; Softplus: beta threshold;
GELU=1.1289041451851549: approximate; Softshrink: lambd; Hardtanh: min_val max_val; SoftHuber: delta; Clip:
low high; LeakyReLU: negative_slope; RReLU: lower upper; PReLU LPReLU: num_parameters; ChannelShuffle:
groups; Dropout AlphaDropout FeatureAlphaDropout: p; Scale InvertibleDownsampling InvertibleUpsampling:
factor; PixelShuffle: upscale_factor; PixelUnshuffle: downscale_factor; ChannelShift: shift; Softmax=0.5
LogSoftmax MaxMin FullSort HalfAbs LayerCentering: dim; GroupSort Maxout: group_size dim; Flatten:
start_dim end_dim; Unflatten: dim unflattened_size; Householder: num_channels learnable dim; Centering:
num_features momentum bias; LipschitzBatchNorm: num_features momentum bias eps; BatchNorm: num_features eps
momentum affine; ZeroPad ReflectionPad ReplicationPad CircularPad SymmetricPad: padding; AdaptiveAvgPool
AdaptiveMaxPool: output_size; ScaledAvgPool: kernel_size; L2Pool: kernel_size stride ceil_mode; MaxPool:
kernel_size stride ceil_mode padding dilation; AvgPool: kernel_size stride ceil_mode padding
count_include_pad; ConeCritic: num_centres dim temperature; LinfDistance: in_features out_features;
SortDistance: in_features out_features q; Linear SandwichStep: in_features out_features bias;
PotentialStep: features hidden_features bias; PotentialStep2d: channels hidden_channels kernel_size bias;
LinfDistance2d: in_channels out_channels kernel_size stride padding; Conv ConvTranspose: in_channels
out_channels kernel_size stride padding dilation groups bias padding_mode"""
ROWS = [row.split(":") for row in TABLE.split(";")]
KNOWN = {re.sub("=.*", "", each): row[1].split() for row in ROWS for each in row[0].split()}
SLOPES = {name: float(slope) for name, slope in re.findall(r"(\w+)=([\d.]+)", TABLE)}
OPTIONAL = {"method", "order", "num_steps", "scaling", "beta", "p", "output_padding"}
# Layers that evaluate to other numbers than their parameter, and the plain layers they then are.
CONSTRAINED = {
    r"(AOL|Orthonormal|Spectral|Parseval|Linf|L1|Mixed|UnitNorm)(Linear|Conv.*)": r"\2",
    r"(SLL|CPL)Residual(2d)?": r"PotentialStep\2",
    "SandwichLinear": "SandwichStep",
}
# Ways to pad by the start of their names, and what numpy calls them.
EDGES: Any = {"zero": "", "refl": "reflect", "repl": "edge", "circ": "wrap", "symm": "symmetric"}


class Refused(Exception):
    """The file is malformed, or its claim is not proven; the text says which and where."""


class NotProven(Refused):
    """A witness is too small, or smaller than this checker can see."""


# One dimension of a convolution; on a circle it has no `outputs`.
Axis = namedtuple("Axis", "taps stride dilation front size outputs")
# A layer of a file: its name for errors, its kind without the constraint, the shape of one sample of its
# input, where known, and the dimension of that along which it works.
Layer = namedtuple("Layer", "name kind arguments weight tensors witness shape axis")


def require(condition: Any, reason: str, error: type[Refused] = Refused) -> None:
    """Raises unless the condition holds."""
    if not condition:
        raise error(reason)


def usual(value: Any) -> bool:
    """Whether an argument is a flag, a text, a number or a list of sizes, none of them large."""
    if isinstance(value, list):
        return all(type(each) is int and 0 <= each < 2**31 for each in value)
    return type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < 2**31)


def up(x: Any) -> float:
    """The least float64 that is at least the rational number x, or infinity."""
    near = float(x)
    return near if math.isinf(near) or Fraction(near) >= x else math.nextafter(near, math.inf)


def times(*x: Any) -> float:
    """A product, rounded up; 0 wins over infinity."""
    return 0.0 if 0 in x else math.inf if math.inf in x else up(math.prod(map(Fraction, x)))


def plus(*x: float) -> float:
    """A sum, rounded up."""
    return math.inf if math.inf in x else up(sum(map(Fraction, x)))


def root(x: Any) -> float:
    """A square root, rounded up."""
    found = math.sqrt(up(x))
    return found if Fraction(found) ** 2 >= x else math.nextafter(found, math.inf)


def largest_sum(rows: np.ndarray) -> float:
    """The largest sum of magnitudes of a row: rounded once, upwards where a rest is left."""
    rows = np.abs(rows)
    close = rows[(sums := rows.sum(1)) >= sums.max() * (1 - 1e-9)]
    totals = [(math.fsum(row), row) for row in close.tolist()]
    return max(math.nextafter(t, 2 * t if math.fsum([*row, -t]) > 0 else t) for t, row in totals)


def norm_at_most(stack: np.ndarray, bound: Fraction) -> bool:
    """Proves ||W||_2 <= bound for each W of a stack, by Cholesky with a shift for all rounding."""
    stack = stack if stack.shape[1] >= stack.shape[2] else stack.swapaxes(1, 2)
    (m, n), gram = stack.shape[1:], stack.swapaxes(1, 2) @ stack
    c = math.nextafter(float(bound * bound), 0.0) if bound > 0 else 0.0
    diagonal = c - np.einsum("bii->bi", gram)
    backward = (n + 4) * U * (1 + (n + 4) * 2 * U) * np.abs(diagonal).sum(1)
    shift = backward + m * U * np.einsum("bij,bij->b", stack, stack) + 8 * U * c
    np.negative(gram, out=gram)
    np.einsum("bii->bi", gram)[...] = diagonal - (1 + 1e-6) * shift[:, None]
    try:
        return bool(np.isfinite(np.linalg.cholesky(gram)).all())
    except np.linalg.LinAlgError:
        return False


def to_blocks(kernel: np.ndarray, axes: list[Axis]) -> tuple[np.ndarray, list[list[int]]]:
    """The same map with stride 1: `(groups, out, in * phases, taps)`, and offsets per dimension."""

    def is_read(a: Axis, tap: int) -> bool:
        starts = range(a.outputs or 0)
        place = a.dilation * tap - a.front
        return a.outputs is None or any(0 <= a.stride * t + place < a.size for t in starts)

    reads = [[divmod(a.dilation * j, a.stride) for j in range(a.taps)] for a in axes]
    offsets, phases = ([sorted({read[i] for read in each}) for each in reads] for i in (0, 1))
    split = np.zeros((*kernel.shape[:3], *map(len, phases), *map(len, offsets)))
    for tap in itertools.product(*([j for j in range(a.taps) if is_read(a, j)] for a in axes)):
        both = [each[j] for each, j in zip(reads, tap, strict=True)]
        place = [table.index(read[1]) for table, read in zip(phases, both, strict=True)]
        place += [table.index(read[0]) for table, read in zip(offsets, both, strict=True)]
        split[(..., *place)] = kernel[(..., *tap)]
    return split.reshape(*kernel.shape[:2], -1, math.prod(map(len, offsets))), offsets


def proven_on_grid(taps: np.ndarray, offsets: Any, axes: Any, points: Any, bound: Fraction) -> bool:
    """Proves the bound from the transfer matrices at frequencies 2 pi j / N, N points a dimension."""
    places = []
    for each, a, n in zip(offsets, axes, points, strict=True):
        held = n * a.stride == a.size
        if a.outputs is not None:  # the map is a block of the one on a circle of so many blocks
            last = a.outputs + a.dilation * (a.taps - 1) // a.stride - a.front // a.stride
            held = n >= max((a.size - 1 + a.front) // a.stride + 1, last)
        step = 1 if held else math.gcd(*(offset - each[0] for offset in each)) or 1
        places.append([(offset - each[0]) // step % n for offset in each])
        if not held:
            x = Fraction(355, 113) * ((each[-1] - each[0]) // step) / (2 * n)  # 355/113 > pi
            require(x < 1, "a grid of frequencies is too coarse")
            bound *= 1 - x**2 / 2 + x**4 / 24 - x**6 / 720  # a lower bound of the cosine
    groups, out, columns, count = taps.shape
    flat, turn = taps.reshape(-1, count).T.copy(), math.prod(points)
    units = [np.arange(n) * (turn // n) for n in points]
    units[-1] = units[-1][: points[-1] // 2 + 1]  # the others are conjugate
    frequencies = np.stack([x.ravel() for x in np.meshgrid(*units, indexing="ij")], -1)
    lattice = np.stack([x.ravel() for x in np.meshgrid(*places, indexing="ij")])
    # Angles are reduced exactly; sines and cosines of their rounded values are off by at most 32u.
    reach = np.abs(flat).sum(0).reshape(groups, -1)
    length = math.sqrt(float((reach * reach).sum(1).max())) * (1 + 1e-6)
    bound -= Fraction(1.5 * (32 + 2 * (count + 2)) * U * length)
    step = max(1, 2**19 // flat.shape[1])
    for start in range(0, len(frequencies), step):
        angles = (frequencies[start : start + step] @ lattice) % turn
        angles = np.where(2 * angles > turn, angles - turn, angles) * (2 * math.pi / turn)
        real, imaginary = ((f(angles) @ flat).reshape(-1, out, columns) for f in (np.cos, np.sin))
        if not norm_at_most(np.block([[real, -imaginary], [imaginary, real]]), bound):
            return False
    return True


def autocorrelation_at_most(taps: np.ndarray, offsets: Any, bound: Fraction) -> bool:
    """Proves the bound at all frequencies: |T*T| <= A = sum_l |sum_q K_q' K_(q+l)|, Av <= s^2 v."""
    taps = np.moveaxis(taps, -1, 0)  # (taps, groups, out, in)
    taps = taps if taps.shape[2] < taps.shape[3] else taps.swapaxes(2, 3)
    lags: dict[Any, list[tuple[int, int]]] = {}
    for (i, a), (j, b) in itertools.product(enumerate(itertools.product(*offsets)), repeat=2):
        lags.setdefault(tuple(y - x for x, y in zip(a, b, strict=True)), []).append((i, j))
    size, reach = taps.shape[2], np.abs(taps).sum(0)
    terms = len(taps) * taps.shape[3] + len(lags) + size + 8
    majorant = 1.001 * terms * U * (reach @ reach.swapaxes(1, 2)) + 2.0**-900
    for pairs in lags.values():
        majorant += np.abs(sum(taps[i] @ taps[j].swapaxes(1, 2) for i, j in pairs))
    c = float(bound * bound) * (1 - 2 * (size + 8) * U)
    try:  # (s^2 I - A) v = 1 has a positive solution if s^2 is above the spectral radius of A
        vector = np.linalg.solve(c * np.eye(size) - majorant, np.ones((len(majorant), size, 1)))
    except np.linalg.LinAlgError:
        return False
    return bool((vector > 0).all() and (majorant @ vector <= c * vector).all())


def linear_gains(layer: Layer, kernel: Any, route: str, axes: list[Axis], copies: int) -> Any:
    """Constants of a linear map between blocks, `copies` of its inputs or outputs in a row."""
    (taps, offsets), factor = to_blocks(kernel, axes), root(copies)
    _, out, columns, count = taps.shape
    l1 = largest_sum(np.moveaxis(taps, 1, 3).reshape(-1, out * count))
    linf = largest_sum(taps.reshape(-1, columns * count))
    l2 = times(root(Fraction(l1) * Fraction(linf)), factor)  # Schur
    if layer.witness.get("route") == route and taps.any():
        stated, points = layer.witness["l2"], layer.witness.get("frequencies")
        if points is not None:
            few = usual(points) and axes and 0 < math.prod(points) <= MOST_FREQUENCIES
            require(few, f"{layer.name}: the witness holds no grid of frequencies")
            way: Any = (proven_on_grid, taps, offsets, axes, points)
        else:
            way = (autocorrelation_at_most, taps, offsets) if axes else (norm_at_most, taps[..., 0])
        bound, norm = Fraction(stated) / Fraction(factor), f"{layer.name}: the norm of the weight"
        require(way[0](*way[1:], bound), f"{norm} is not proven to be at most {stated}", NotProven)
        require(not way[0](*way[1:], bound * LOOSE), f"{norm} is less than {stated}")
        l2 = min(l2, stated)
    return [times(l1, copies), l2, linf]


def dense_gains(layer: Layer, rows: int, columns: int, size: int) -> Any:
    """Constants of the matrix of a layer on vectors of `size` entries."""
    fits = layer.shape is None or layer.shape[-1] == size
    fits &= layer.weight.shape == (rows, columns)
    require(fits, f"{layer.name} does not fit its weight, or its input of shape {layer.shape}")
    return linear_gains(layer, layer.weight[None], "dense", [], 1)


def most_copies(layer: Layer, mode: str, front: int, back: int, n: int | None) -> int:
    """How often padding one dimension copies one of its entries, at most."""
    edge = EDGES[mode.lower()[:4]]
    longest = 2**20 if n is None or edge in ("", "edge") else n - (edge == "reflect")
    require(max(front, back) <= longest, f"{layer.name}: padding is longer than its input")
    if n is None or not edge:
        return 1 + (front + back if edge == "edge" else bool(edge) * ((front > 0) + (back > 0)))
    return int(np.bincount(np.pad(np.arange(n), (front, back), edge)).max())


def convolution(layer: Layer) -> Any:
    """A convolution, or the adjoint of one: constants, and the shape of its output."""
    a, shape, adjoint = layer.arguments, layer.shape, layer.kind == "ConvTranspose"
    taps, strides, dilations, padding = a["kernel_size"], a["stride"], a["dilation"], a["padding"]
    groups, mode, sizes = a["groups"], a["padding_mode"], shape[1:] if shape else [None] * len(taps)
    sides = ("in_channels", "out_channels") if adjoint else ("out_channels", "in_channels")
    rows, columns = (a[side] // groups for side in sides)
    fits = layer.weight.shape == (rows * groups, columns, *taps) and columns * groups == a[sides[1]]
    fits &= shape is None or (len(shape) == len(taps) + 1 and shape[0] == a["in_channels"])
    fits &= min(*taps, *strides, *dilations) > 0 and math.prod(taps) <= MOST_TAPS
    require(fits, f"{layer.name} does not fit its kernel, or its input of shape {shape}")
    if padding == "same":
        ends = [d * (k - 1) for k, d in zip(taps, dilations, strict=True)]
    else:
        ends = [0] * len(taps) if padding == "valid" else [2 * int(x) for x in padding.split()]
    usual_ends = min(ends) >= 0 and (padding != "same" or max(strides) == 1)
    require(usual_ends, f"{layer.name}: padding that no convolution has")
    outputs, plain, circle, copies, repeats = [], [], [], 1, 1
    lists = taps, strides, dilations, ends, a.get("output_padding", [0] * len(taps)), sizes
    for k, s, d, end, extra, n in zip(*lists, strict=True):
        front, back, reach, outer = end // 2, end - end // 2, d * (k - 1), n and n + end
        if adjoint:
            made = n and (n - 1) * s + reach + 1 + extra - end
            plain.append(Axis(k, s, d, front, made, n))
        else:
            made = n and (outer - reach - 1) // s + 1
            plain.append(Axis(k, s, d, *((front, n) if mode == "zeros" else (0, outer)), made))
        require(n is None or made > 0, f"{layer.name} has no output")
        outputs.append(made)
        copies *= most_copies(layer, mode, front, back, n)
        # A stride that does not divide the circle mixes phases; with stride 1 outputs are more.
        step = s if n is not None and n % s == 0 else 1
        circle.append(Axis(k, step, d, 0, n, None))
        around = 1 + max(0, -(-(end - reach) // max(back, 1)))
        repeats *= around if n is None else -(-((outer - reach - 1) // step + 1) // (n // step))
    blocks = layer.weight.reshape(groups, rows, columns, *taps)
    gains = linear_gains(layer, blocks, "zeros" if mode == "zeros" else "padding", plain, copies)
    if mode == "circular":
        gains = list(map(min, gains, linear_gains(layer, blocks, "circle", circle, repeats)))
    return gains[::-1] if adjoint else gains, shape and (a["out_channels"], *outputs)


def pool(layer: Layer) -> Any:
    """Pooling: constants from the windows of each dimension, and the shape of its output."""
    a, kind, shape = layer.arguments, layer.kind, layer.shape
    if kind.startswith("Adaptive"):  # windows that divide the input are those of plain pooling
        sizes = list(zip((shape or ())[1:], a["output_size"], strict=True))
        divide = all(n % m == 0 for n, m in sizes)
        require(divide, f"{layer.name}: windows that do not divide are not known")
        a = {"kernel_size": [n // m for n, m in sizes]}
    windows, ceil = a["kernel_size"], a.get("ceil_mode", False)
    count, cells = len(windows), math.prod(windows)
    cut = ceil or (any(a.get("padding", [])) and not a.get("count_include_pad", True))
    whole = max(windows) <= 2**20 and ("Max" in kind or not cut)
    require(whole, f"{layer.name}: windows cut at the border are not known")
    lists = a.get("stride", windows), a.get("padding", [0] * count), a.get("dilation", [1] * count)
    most, l1, square, after = 1, Fraction(1), Fraction(1), []
    sizes = shape[1:] if shape else [None] * count
    for n, k, s, pad, d in zip(sizes, windows, *lists, strict=True):
        reads = Counter(d * j % s for j in range(k)).values()
        here, l1 = max(reads), l1 * Fraction(max(reads), k)
        square *= Fraction(sum(r * r for r in reads), k * k)
        if n is not None:
            m = (n + 2 * pad - d * (k - 1) - 1 + (s - 1) * ceil) // s + 1
            after.append(m - (ceil and (m - 1) * s >= n + pad))
            here = min(here, after[-1])
        most *= here
    require(min(after, default=1) > 0, f"{layer.name} has no output")
    after = shape and (shape[0], *after)
    if "Avg" in kind:  # a scaled one multiplies by this float
        scale = Fraction(math.sqrt(cells) * (1 - 2.0**-50)) if kind == "ScaledAvgPool" else 1
        return [up(scale * l1), root(scale**2 * square), up(scale)], after
    if kind == "L2Pool":
        return [up(l1 * cells), root(l1 * cells), root(cells)], after
    return [up(most), root(most), 1.0], after


def relu_pair(layer: Layer) -> Any:
    """Two linear maps of one weight with ReLU between them, each proven as a whole in L2."""
    a, after = layer.arguments, layer.shape
    if layer.kind == "SandwichStep":  # 2 A' relu(Bx + b) has |[A B]|^2
        out, size = a["out_features"], a["in_features"]
        _, l2, _ = dense_gains(layer, out, out + size, size)
        outer, inner = layer.weight[:, :out], layer.weight[:, out:]
        l1 = times(2, largest_sum(inner.T), largest_sum(outer))
        linf = times(2, largest_sum(inner), largest_sum(outer.T))
        return [l1, times(l2, l2), linf], after and (*after[:-1], out)
    if layer.kind == "PotentialStep":  # x - 2 W' relu(Wx + b) has max(1, 2 |W|^2 - 1)
        l1, l2, linf = dense_gains(layer, a["hidden_features"], a["features"], a["features"])
    else:
        k = a["kernel_size"]
        geometry = {"kernel_size": [k, k], "stride": [1, 1], "dilation": [1, 1], "groups": 1}
        geometry |= {"in_channels": a["channels"], "out_channels": a["hidden_channels"]}
        geometry |= {"padding": f"{k // 2} {k // 2}", "padding_mode": "zeros"}
        require(k % 2, f"{layer.name} needs an odd kernel")
        (l1, l2, linf), _ = convolution(layer._replace(kind="Conv", arguments=geometry))
    both = up(1 + 2 * Fraction(l1) * Fraction(linf))
    return [both, max(1.0, up(2 * Fraction(l2) ** 2 - 1)), both], after


def gains_of(layer: Layer) -> Any:
    """Constants of a layer, and the shape of its output.

    A constant is one number, or for dense layers those from each norm up to the output's.
    """
    a, at, shape, axis, weight = layer[2], layer.name, layer.shape, layer.axis, layer.weight
    slope = 1.129 if a.get("approximate") == "tanh" else SLOPES.get(layer.kind, 1.0)
    gains, after = [slope] * 3, shape
    match layer.kind:
        case "Linear":
            out, size = a["out_features"], a["in_features"]
            l1, l2, linf = dense_gains(layer, out, size, size)
            totals = (Fraction(largest_sum(x**2)) * Fraction(1 + 4 * U) for x in (weight.T, weight))
            column, row = (root(total + Fraction(2) ** -980) for total in totals)
            gains = [[l1], [column, l2], [float(np.abs(weight).max()), row, linf]]
            after = shape and (*shape[:-1], out)
        case "SandwichStep" | "PotentialStep" | "PotentialStep2d":
            gains, after = relu_pair(layer)
        case "Conv" | "ConvTranspose":
            gains, after = convolution(layer)
        case kind if kind.endswith("Pool"):
            gains, after = pool(layer)
        case kind if kind.endswith("Pad"):  # by the number of copies of an entry
            count = len(a["padding"]) // 2
            sizes = shape[-count:] if shape else [None] * count
            sides: Any = list(zip(a["padding"][-2::-2], a["padding"][::-2], sizes, strict=True))
            number = math.prod(most_copies(layer, kind, *side) for side in sides)
            gains = [up(number), root(number), 1.0]
            after = shape and (*shape[:-count], *map(sum, sides))
        case "ConeCritic" | "LinfDistance" | "SortDistance":  # one value, `out` for each point
            cone = layer.kind == "ConeCritic"
            out, size = a.get("out_features", 1), a["dim"] if cone else a["in_features"]
            fits = cone or (weight.shape == (out, size) and 0 < a.get("q", 1) <= 1)
            require(fits and (shape is None or shape[-1] == size), f"{at} does not fit {shape}")
            steep = abs(float(layer.tensors["sign"])) if cone else 1.0
            gains = [times(steep, each) for each in (out, root(out), root(size) if cone else 1)]
            after = shape and (*shape[:-1], out)
        case "Clip":
            width = Fraction(a["high"]) - Fraction(a["low"])
            require(width > 0, f"{at} has no range to clip to")
            gains = [up(1 / width)] * 3
        case "LinfDistance2d":  # every output is one value of its patch
            inside, out, k, step, ends = (a[name] for name in KNOWN[layer.kind])
            fits = weight.shape == (out, inside * k * k) and min(inside, out, k, step, ends + 1) > 0
            require(fits and (shape or ())[:1] == (inside,), f"{at} does not fit {shape}")
            after = (out, *((n + 2 * ends - k) // step + 1 for n in (shape or ())[1:]))
            require(len(after) == 3 and min(after) > 0, f"{at} does not fit {shape}")
            gains = [float(math.prod(after)), root(math.prod(after)), 1.0]
        case "Flatten" if shape:
            end = a["end_dim"] % (len(shape) + 1)
            after = (*shape[:axis], math.prod(shape[axis:end]), *shape[end:])
        case "Unflatten" | "Maxout" if shape:
            group = a.get("group_size", 1)
            parts = a.get("unflattened_size", [shape[axis] // group])
            after = (*shape[:axis], *parts, *shape[axis + 1 :])
            require(math.prod(after) * group == math.prod(shape), f"{at} does not divide {shape}")
        case "PixelShuffle" | "PixelUnshuffle" | "InvertibleDownsampling" | "InvertibleUpsampling":
            if shape:
                (f,) = map(Fraction, a.values())
                f = f if layer.kind in ("PixelShuffle", "InvertibleUpsampling") else 1 / f
                after = tuple(map(int, (shape[0] / f**2, shape[1] * f, shape[2] * f)))
                require(math.prod(after) == math.prod(shape), f"{at} does not divide {shape}")
        case "ChannelShift":
            require(len(shape or ()) == 3, f"{at} needs images of a known shape")
        case "Householder":  # rows and columns of a reflection sum to |cos| + |sin| at most
            gains = [root(2), 1.0, root(2)]
        case "LogSoftmax":  # the Jacobian is I - 1p', for so many classes
            classes: Any = (shape or ())[axis]
            gains = [max(1.0, classes - 1.0), root(classes), 2.0]
        case "LayerCentering":  # I - 11'/n
            wide = up(2 - Fraction(2, shape[axis])) if shape else 2.0
            gains = [wide, 1.0, wide]
        case "BatchNorm" | "LipschitzBatchNorm":
            spread = list(map(Fraction, layer.tensors["running_var"]))
            require(min(*spread, a["eps"]) >= 0, f"{at}: a variance or `eps` is negative")
            if layer.kind == "LipschitzBatchNorm":
                spread = [max(1, *spread)]
            factors = weight.tolist() if a.get("affine") else [1] * len(spread)
            pairs = zip(factors, spread, strict=True)
            gains = [root(max(Fraction(f) ** 2 / (v + Fraction(a["eps"])) for f, v in pairs))] * 3
        case "LeakyReLU" | "ELU" | "Scale" | "PReLU" | "RReLU":
            slopes = weight if layer.kind == "PReLU" else [sum(map(Fraction, a.values())) / len(a)]
            gains = [up(max(layer.kind != "Scale", *map(abs, slopes)))] * 3
        case "Softplus" | "CELU" | "Softshrink":
            smooth = a.get("beta", 1) > 0 <= a.get("lambd", 0) and a.get("threshold", 40) >= 40
            require(smooth and a.get("alpha", 1) > 0, f"{at} jumps, or has no bounded slope")
    return gains, after


def read_layer(kind: str, a: Any, path: str, tensors: Any, witness: Any, shape: Any) -> Layer:
    """The layer of a description, after a check of its arguments."""
    at, dot = f"`{path}` ({kind})", f"{path}." if path else ""
    held = {name[len(dot) :]: value for name, value in tensors.items() if name.startswith(dot)}
    weight, plain = held.get("weight"), kind
    for pattern, name in CONSTRAINED.items():
        if found := re.fullmatch(pattern, kind):
            weight, plain = tensors.get(f"evaluation:{path}", weight), found.expand(name)
    base = plain if plain in KNOWN else re.sub("[123]d$", "", plain)
    require(base in KNOWN, f"{at} is not a layer that this checker knows")
    more = OPTIONAL if base in ("Linear", "Conv", "ConvTranspose") else set()
    known = set(KNOWN[base]) <= a.keys() <= {*KNOWN[base], *more}
    known &= all(usual(x) or (name in ("dim", "momentum") and x is None) for name, x in a.items())
    require(known, f"{at} has arguments of an unknown kind")
    require(0 <= witness.get("l2", 0) < 2.0**500, f"{at}: the witness is not a norm")
    rank, last = len(shape or ()) + 1, "Softmax" not in base and a.get("dim", 0) is None
    dim: Any = -1 if last else a.get("start_dim", a.get("dim", 1))
    apart = dim == -1 or dim > 0 if shape is None else -rank < dim < rank and dim != 0
    require(apart or base == "ConeCritic", f"{at} mixes the samples of a batch, or may")
    return Layer(at, base, a, weight, held, witness, shape, dim % rank - 1)


def within(bounds: Any, shape: Any) -> Any:
    """The same with ||v||_inf <= ||v||_2 <= ||v||_1 <= sqrt(n) ||v||_2 <= n ||v||_inf."""
    linf, size = min(bounds), math.inf if shape is None else math.prod(shape)
    side = size if shape is None else root(size)
    l2 = min(*bounds[:2], times(side, linf))
    return [min(bounds[0], times(side, l2), times(size, linf)), l2, linf], shape


def prove(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> float:
    """The constant that the witnesses of a header prove of its network."""
    seen, steps, witnesses = {}, itertools.count(1), header["witnesses"]

    def run(model: Any, path: str, bounds: Any, shape: Any, depth: int) -> Any:
        require(next(steps) <= MOST_LAYERS and depth <= DEEPEST, "the network has too many layers")
        dot = f"{path}." if path else ""
        match model:
            case {"kind": "Sequential", "children": list(children), **rest} if not rest:
                for name, child in children:
                    bounds, shape = run(child, f"{dot}{name}", bounds, shape, depth + 1)
            case {"kind": "Residual", "mode": "add" | "average" as mode, "scale": float(s), **ways}:
                body, after = run(ways.pop("body"), f"{dot}body", bounds, shape, depth + 1)
                if "shortcut" in ways:
                    shortcut = ways.pop("shortcut")
                    bounds, shape = run(shortcut, f"{dot}shortcut", bounds, shape, depth + 1)
                fits = not ways and usual(s) and after == shape is not None
                require(fits, f"`{path}` (Residual) needs summands of one known shape")
                kept = 1.0 if mode == "add" else abs(1 - s)
                pairs = zip(body, bounds, strict=True)
                bounds = [plus(times(abs(s), y), times(kept, x)) for y, x in pairs]
            case {"kind": "same as", "path": str(other), **rest} if not rest and other in seen:
                bounds, shape = run(seen[other], other, bounds, shape, depth + 1)
            case {"kind": str(kind), "arguments": dict(a), **rest} if not rest:
                layer = read_layer(kind, a, path, tensors, witnesses.get(path, {}), shape)
                gains, shape = gains_of(layer)
                rows = (
                    g if isinstance(g, list) else [math.inf] * i + [g] for i, g in enumerate(gains)
                )
                bounds = [min(map(times, bounds, row)) for row in rows]
            case _:
                raise Refused(f"`{path}` is described by {str(model)[:80]!r}")
        require(seen.setdefault(path, model) is model, f"`{path}` names two layers")
        return within(bounds, shape)

    shape, (p, q) = header["input_shape"], (NORMS.index(header[n]) for n in ("norm", "output_norm"))
    require(shape is None or (usual(shape) and math.prod(shape) > 0), "the input shape is invalid")
    source = within([1.0 if r >= p else math.inf for r in range(3)], shape and tuple(shape))
    bounds, _ = run(header["model"], "", source[0], source[1], 0)
    return bounds[q]


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tensors of a file whose checksum is right."""
    end = 8 + int.from_bytes(data[:8], "little")
    require(end <= len(data), "it is truncated, or not a safetensors file")
    once: Any = {"object_pairs_hook": lambda x: dict(x) if len(dict(x)) == len(x) else None}
    entries = json.loads(data[8:end], **once)
    header = json.loads(entries.pop("__metadata__")["taut"], **once)
    require(header["format"] == 2, f"its format is {str(header['format'])[:20]}, not 2")
    marks = re.finditer(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"', data[:end])
    (start, stop), *others = (mark.span(1) for mark in marks)
    digest = hashlib.sha256(data[:start] + b"0" * 64 + data[stop:]).hexdigest().encode()
    intact = not others and digest == data[start:stop]
    require(intact, "the checksum does not match: it was altered")
    tensors, first = {}, end
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        (start, stop), shape = (first + offset for offset in entry["data_offsets"]), entry["shape"]
        dtype = np.dtype(DTYPES[entry["dtype"]])
        fits = usual(shape) and start == end and stop - start == math.prod(shape) * dtype.itemsize
        require(fits, f"tensor `{name}` is not where the one before it ends")
        flat, end = np.frombuffer(data[start:stop], dtype), stop
        flat = (flat.astype("<u4") << 16).view("<f4") if dtype == "<u2" else flat
        tensors[name] = flat.reshape(shape).astype(np.float64)
        largest = float(np.abs(tensors[name]).max(initial=0))
        in_range = largest == 0 or 1e-100 < largest < 1e100
        require(in_range, f"tensor `{name}` is out of range or NaN")
    require(end == len(data), "it is truncated, or was added to")
    for name in [n for n in tensors if n.endswith(":row-scale") and n[:-10] in tensors]:
        tensors[name[:-10]] = tensors[name[:-10]] * tensors.pop(name)
    return header, tensors


def check(data: bytes, sha256: str | None = None) -> dict[str, Any]:
    """Proves the constant that a file states; raises `Refused` if it is malformed or not proven."""
    found = hashlib.sha256(data).hexdigest()
    require(sha256 is None or sha256.lower() == found, f"its SHA-256 is {found}, not the one given")
    sums = np.array([1.0, -1.0, 2.0**-1074]) + np.array([2.0**-53, -(2.0**-53), 0.0])
    require(sums.tolist() == [1.0, -1.0, 2.0**-1074], "this machine does not round to nearest")
    try:
        header, tensors = read(data)
        claimed, constant = float(header["constant"]), prove(header, tensors)
        tight = claimed * LOOSE <= constant <= claimed
        require(tight, f"it states {claimed}, but {constant} is proven")
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        raise Refused(f"it is malformed: {type(e).__name__}: {e}") from e
    stated = {name: header[name] for name in ("norm", "output_norm", "input_shape")}
    return {"constant": constant, "claimed": claimed, **stated, "sha256": found}


if __name__ == "__main__":
    try:
        proven = check(np.fromfile(sys.argv[1], np.uint8).tobytes(), *sys.argv[2:])
        sys.stdout.write(f"proven: {json.dumps(proven)}\n")
    except (IndexError, OSError, TypeError, Refused) as error:
        sys.exit(f"refused: {error}")
