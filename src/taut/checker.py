r"""Checks the Lipschitz constant that a saved network states, with numpy and nothing else.

`python checker.py FILE [SHA256]` reads what `taut.save` wrote, takes the *witness* of each layer (a number
that bounds its L2 norm, and how to see it), proves it for the stored weights as real numbers, rounding
included, and composes the layers. It shares no code with the prover. Theorems: page "Saved files".
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

# fmt: off
__all__ = ["Refused", "check", "prove"]
U = 2.0**-53 * (1 + 1e-6)  # so that k U >= ku / (1 - ku) for u = 2^-53, up to k = 10^9
NORMS, LOOSE = ("l1", "l2", "linf"), 1 - Fraction(1, 10**6)  # what is stated is tight to six digits
MOST_FREQUENCIES, MOST_TAPS, MOST_LAYERS, DEEPEST = 2**22, 2**10, 1000, 32
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
EDGES = {"zeros": "", "zeropad": "", "reflect": "reflect", "replica": "edge", "circula": "wrap"}
# Arguments, and layers that have them: names without constraint and dimensions, slopes other than 1.
TABLE = """: Identity Abs ReLU ReLU6 Tanh LogSigmoid Softsign Tanhshrink Sigmoid=0.25 SELU=1.7581
    SiLU=1.09984 Mish=1.0885 Hardsigmoid=0.166667 Hardswish=1.500001; p: Dropout AlphaDropout
    FeatureAlphaDropout; approximate: GELU=1.1289041451851549; alpha: ELU CELU=1.000001; lambd: Softshrink;
    beta threshold: Softplus; min_val max_val: Hardtanh; negative_slope: LeakyReLU; lower upper: RReLU;
    num_parameters: PReLU LPReLU; factor: Scale InvertibleDownsampling InvertibleUpsampling; delta:
    SoftHuber; upscale_factor: PixelShuffle; downscale_factor: PixelUnshuffle; groups: ChannelShuffle; dim:
    MaxMin FullSort HalfAbs LogSoftmax Softmax=0.5; group_size dim: GroupSort Maxout; num_channels learnable
    dim: Householder; num_centres dim temperature: ConeCritic; num_features momentum bias: Centering;
    num_features eps momentum affine: BatchNorm; start_dim end_dim: Flatten; dim unflattened_size:
    Unflatten; padding: ZeroPad ReflectionPad ReplicationPad CircularPad; output_size: AdaptiveAvgPool
    AdaptiveMaxPool; kernel_size stride ceil_mode: L2Pool; kernel_size stride ceil_mode padding dilation:
    MaxPool; kernel_size stride ceil_mode padding count_include_pad: AvgPool; in_features out_features bias:
    Linear; in_features out_features: LinfDistance; in_features out_features q: SortDistance; in_channels
    out_channels kernel_size stride padding dilation groups bias padding_mode: Conv"""
ROWS = [row.split(":") for row in TABLE.split(";")]
KINDS = {each.split("=")[0]: (a.split(), each) for a, names in ROWS for each in names.split()}
PREFIX = r"^(AOL|Orthonormal|Spectral|Parseval|Linf|L1|Mixed|UnitNorm)(?=Linear|Conv)"
OPTIONAL = {"method", "order", "num_steps", "scaling", "beta", "p", "output_padding"}
Axis = namedtuple("Axis", "taps stride dilation front size outputs")  # a circle has no `outputs`

class Refused(Exception):
    """The file is malformed, or its claim is not proven; the text says which and where."""

def require(condition: Any, reason: str) -> None:
    if not condition:
        raise Refused(reason)

def usual(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(each) is int and 0 <= each < 2**31 for each in value)
    return type(value) in (bool, str) or (type(value) in (int, float) and abs(value) < 2**31)

def up(x: Any) -> float:
    """The least float64 that is at least the rational number x, or infinity."""
    near = float(x)
    return near if math.isinf(near) or Fraction(near) >= x else math.nextafter(near, math.inf)

def times(*x: Any) -> float:
    return 0.0 if 0 in x else math.inf if math.inf in x else up(math.prod(map(Fraction, x)))

def root(x: Any) -> float:
    found = math.sqrt(up(x))
    return found if Fraction(found) ** 2 >= x else math.nextafter(found, math.inf)

def largest_sum(rows: np.ndarray) -> float:
    """The largest sum of a row of non-negative numbers: rounded once, upwards where a rest is left."""
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
    reads = [[divmod(a.dilation * j, a.stride) for j in range(a.taps)] for a in axes]
    offsets, phases = ([sorted({read[i] for read in each}) for each in reads] for i in (0, 1))
    split = np.zeros((*kernel.shape[:3], *map(len, phases), *map(len, offsets)))
    used = [[a.outputs is None or any(0 <= a.stride * t + a.dilation * j - a.front < a.size
            for t in range(a.outputs)) for j in range(a.taps)] for a in axes]
    for tap in itertools.product(*(range(a.taps) for a in axes)):
        if all(each[j] for each, j in zip(used, tap, strict=True)):
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

def route_gains(kernel: Any, name: str, axes: Any, copies: int, witness: Any, at: str) -> Any:
    """Constants in the three norms of a map between blocks whose inputs or outputs are copied."""
    (taps, offsets), factor = to_blocks(kernel, axes), root(copies)
    size = np.abs(taps)
    l1 = largest_sum(np.moveaxis(size, 1, 3).reshape(-1, size.shape[1] * size.shape[3]))
    linf = largest_sum(size.reshape(-1, size.shape[2] * size.shape[3]))
    l2 = times(root(Fraction(l1) * Fraction(linf)), factor)  # Schur
    if witness.get("route") == name and size.any():
        stated, points = witness["l2"], witness.get("frequencies")
        few = usual(points) and axes and 0 < math.prod(points) <= MOST_FREQUENCIES
        require(points is None or few, f"{at}: the witness holds no grid of frequencies")
        way: Any = (proven_on_grid, taps, offsets, axes, points) if points is not None else (
            (autocorrelation_at_most, taps, offsets) if axes else (norm_at_most, taps[..., 0]))
        bound, norm = Fraction(stated) / Fraction(factor), f"{at}: the L2 norm of the weight is"
        require(way[0](*way[1:], bound), f"{norm} not proven to be at most {stated}")
        require(not way[0](*way[1:], bound * LOOSE), f"{norm} less than {stated}")
        l2 = min(l2, stated)
    return times(l1, copies), l2, linf

def most_copies(mode: str, front: int, back: int, n: int | None, at: str) -> int:
    """How often padding one dimension copies one of its entries, at most."""
    edge: Any = EDGES[mode.lower()[:7]]
    fits = n is None or max(front, back) <= (2**20 if edge in ("", "edge") else n - (edge == "reflect"))
    require(fits, f"{at}: padding is longer than its input")
    if n is None or not edge:
        return 1 + (front + back if edge == "edge" else bool(edge) * ((front > 0) + (back > 0)))
    return int(np.bincount(np.pad(np.arange(n), (front, back), edge)).max())

def convolution(a: Any, adjoint: bool, kernel: Any, shape: Any, witness: Any, at: str) -> Any:
    """Constants of a convolution, or of the adjoint of one, in the three norms, and its output's shape."""
    taps, strides, dilations, padding = a["kernel_size"], a["stride"], a["dilation"], a["padding"]
    groups, mode, sizes = a["groups"], a["padding_mode"], shape[1:] if shape else [None] * len(taps)
    sides = ("in_channels", "out_channels") if adjoint else ("out_channels", "in_channels")
    rows, columns = a[sides[0]] // groups, a[sides[1]] // groups
    fits = kernel.shape == (rows * groups, columns, *taps) and columns * groups == a[sides[1]]
    fits &= shape is None or (len(shape) == len(taps) + 1 and shape[0] == a["in_channels"])
    fits &= min(*taps, *strides, *dilations) > 0 and math.prod(taps) <= MOST_TAPS
    require(fits, f"{at} does not fit its kernel, or its input of shape {shape}")
    named = {"same": [d * (k - 1) for k, d in zip(taps, dilations, strict=True)], "valid": [0] * len(taps)}
    ends = named[padding] if padding in named else [2 * int(x) for x in padding.split()]
    require(min(ends) >= 0 and (padding != "same" or max(strides) == 1), f"{at}: unusual padding")
    outputs, plain, circle, copies, repeats = [], [], [], 1, 1
    lists = taps, strides, dilations, ends, a.get("output_padding", [0] * len(taps)), sizes
    for k, s, d, end, extra, n in zip(*lists, strict=True):
        front, back, reach, outer = end // 2, end - end // 2, d * (k - 1), n and n + end
        made = n and ((n - 1) * s + reach + 1 + extra - end if adjoint else (outer - reach - 1) // s + 1)
        inputs = (front, made, n) if adjoint else (front, n, made) if mode == "zeros" else (0, outer, made)
        plain, outputs = [*plain, Axis(k, s, d, *inputs)], [*outputs, made]
        require(n is None or made > 0, f"{at} has no output")
        copies *= most_copies(mode, front, back, n, at)
        # A stride that does not divide the circle mixes phases; with stride 1 outputs are more.
        step = s if n is not None and n % s == 0 else 1
        circle.append(Axis(k, step, d, 0, n, None))
        around = 1 + max(0, -(-(end - reach) // max(back, 1)))
        repeats *= around if n is None else -(-((outer - reach - 1) // step + 1) // (n // step))
    routes = [("zeros" if mode == "zeros" else "padding", plain, copies), ("circle", circle, repeats)]
    blocks, count = kernel.reshape(groups, rows, columns, *taps), 1 + (mode == "circular")
    found = (route_gains(blocks, n, axes, most, witness, at) for n, axes, most in routes[:count])
    gains = list(map(min, zip(*found, strict=True)))
    return gains[::-1] if adjoint else gains, shape and (a["out_channels"], *outputs)

def pool(kind: str, a: Any, shape: Any, at: str) -> Any:
    """Constants of pooling in the three norms, from the windows of each dimension, and the output."""
    (most, l1, l2), after, ceil, wanted = (1, 1, 1), [], a.get("ceil_mode", False), a.get("output_size")
    if wanted is not None:  # windows that divide the input are those of plain pooling
        sizes = list(zip((shape or ())[1:], wanted, strict=True))
        require(all(n % m == 0 for n, m in sizes), f"{at}: windows that do not divide are not known")
        a = {"kernel_size": [n // m for n, m in sizes], "stride": [n // m for n, m in sizes]}
    cut = any(a.get("padding", [])) and not a.get("count_include_pad", True)
    count, cut = len(a["kernel_size"]), "Max" not in kind and (ceil or cut)
    require(max(a["kernel_size"]) <= 2**20 and not cut, f"{at}: windows cut at the border are not known")
    lists = a["kernel_size"], a["stride"], a.get("padding", [0] * count), a.get("dilation", [1] * count)
    for n, k, s, pad, d in zip(shape[1:] if shape else [None] * count, *lists, strict=True):
        reads = Counter(d * j % s for j in range(k)).values()
        here, l1 = max(reads), l1 * Fraction(max(reads), k)
        l2 *= Fraction(sum(r * r for r in reads), k * k)  # squared
        if n is not None:
            m = (n + 2 * pad - d * (k - 1) - 1 + (s - 1) * ceil) // s + 1
            after.append(m - (ceil and (m - 1) * s >= n + pad))
            here = min(here, after[-1])
        most *= here
    require(min(after, default=1) > 0, f"{at} has no output")
    after, cells = shape and (shape[0], *after), math.prod(a["kernel_size"]) if "L2" in kind else 1
    most = l1 * cells if "L2" in kind else most
    return [up(l1), root(l2), 1.0] if "Avg" in kind else [up(most), root(most), root(cells)], after

def layer(kind: str, a: Any, path: str, tensors: Any, witness: Any, bounds: Any, shape: Any) -> Any:
    """Constants and shape behind one layer."""
    at, dot, base = f"`{path}` ({kind})", f"{path}." if path else "", re.sub(f"{PREFIX}|[123]d$", "", kind)
    adjoint, base = base == "ConvTranspose", base.removesuffix("Transpose")
    require(base in KINDS, f"{at} is not a layer that this checker knows")
    names, slope = KINDS[base]
    known = set(names) <= a.keys() <= {*names, *(OPTIONAL if base in ("Linear", "Conv") else ())}
    known &= all(usual(x) or (name in ("dim", "momentum") and x is None) for name, x in a.items())
    require(known, f"{at} has arguments of an unknown kind")
    require(0 <= witness.get("l2", 0) < 2.0**500, f"{at}: the witness is not a norm")
    rank, last = len(shape or ()) + 1, "Softmax" not in base and a.get("dim", 0) is None
    dim: Any = -1 if last else a.get("start_dim", a.get("dim", 1))
    apart = dim == -1 or dim > 0 if shape is None else -rank < dim < rank and dim != 0
    require(apart or base == "ConeCritic", f"{at} mixes the samples of a batch, or may")
    slope = 1.129 if a.get("approximate") == "tanh" else float(slope.partition("=")[2] or 1)
    first, after, gains = dim % rank - 1, shape, [slope] * 3
    weight = tensors.get(f"evaluation:{path}" * bool(re.match(PREFIX, kind)), tensors.get(f"{dot}weight"))
    match base:
        case "Linear":
            sizes, power = (a["out_features"], a["in_features"]), (weight.T**2, weight**2)
            fits = weight.shape == sizes and (shape is None or shape[-1] == sizes[1])
            require(fits, f"{at} does not fit its weight, or its input of shape {shape}")
            total = (Fraction(largest_sum(x)) * Fraction(1 + 4 * U) for x in power)
            short, long = (root(x + Fraction(2) ** -980) for x in total)
            l1, l2, linf = route_gains(weight[None], "dense", [], 1, witness, at)
            table = [l1], [short, l2], [float(np.abs(weight).max()), long, linf]
            return [min(map(times, bounds, row)) for row in table], shape and (*shape[:-1], sizes[0])
        case "ConeCritic" | "LinfDistance" | "SortDistance":  # bounds of one value, `out` for each point
            out, size, cone = a.get("out_features", 1), a.get("in_features", a.get("dim")), "dim" in a
            fits = cone or (weight.shape == (out, size) and 0 < a.get("q", 1) <= 1)
            require(fits and (shape is None or shape[-1] == size), f"{at} does not fit {shape}")
            steep, after = abs(float(tensors[f"{dot}sign"])) if cone else 1.0, shape and (*shape[:-1], out)
            gains = [times(steep, each) for each in (out, root(out), root(size) if cone else 1)]
        case "Conv":
            gains, after = convolution(a, adjoint, weight, shape, witness, at)
        case _ if base.endswith("Pool"):
            gains, after = pool(kind, a, shape, at)
        case _ if base.endswith("Pad"):
            fronts, backs, count = a["padding"][-2::-2], a["padding"][::-2], len(a["padding"]) // 2
            ends: Any = list(zip(fronts, backs, shape[-count:] if shape else [None] * count, strict=True))
            number = math.prod(most_copies(base, front, back, n, at) for front, back, n in ends)
            gains = [float(number), root(number), 1.0]
            after = shape and (*shape[:-count], *map(sum, ends))
        case "Flatten" if shape:
            after = (*shape[:first], math.prod(shape[first : (last := a["end_dim"] % rank)]), *shape[last:])
        case "Unflatten" | "Maxout" if shape:
            group = a.get("group_size", 1)
            after = a.get("unflattened_size", [shape[first] // group])
            after = (*shape[:first], *after, *shape[first + 1 :])
            require(math.prod(after) * group == math.prod(shape), f"{at} does not divide {shape}")
        case "PixelShuffle" | "PixelUnshuffle" | "InvertibleDownsampling" | "InvertibleUpsampling" if shape:
            f = Fraction(*a.values()) ** (1 if base in ("PixelShuffle", "InvertibleUpsampling") else -1)
            after = tuple(map(int, (shape[0] / f**2, shape[1] * f, shape[2] * f)))
            require(math.prod(after) == math.prod(shape), f"{at} does not divide {shape}")
        case "Householder":  # rows and columns of a reflection sum to |cos| + |sin| at most
            gains = [root(2), 1.0, root(2)]
        case "LogSoftmax":  # the Jacobian is I - 1p', for so many classes
            gains = [max(1.0, (shape or ())[first] - 1.0), root((shape or ())[first]), 2.0]
        case "BatchNorm":
            spread = [Fraction(v) + Fraction(a["eps"]) for v in tensors[f"{dot}running_var"]]
            factors = weight.tolist() if a["affine"] else [1] * len(spread)
            require(min(spread) > 0, f"{at}: a variance is negative")
            gains = [root(max(Fraction(f) ** 2 / v for f, v in zip(factors, spread, strict=True)))] * 3
        case "LeakyReLU" | "ELU" | "Scale" | "PReLU" | "RReLU":
            slopes = weight if base == "PReLU" else [sum(map(Fraction, a.values())) / len(a)]
            gains = [up(max(base != "Scale", *map(abs, slopes)))] * 3
        case "Softplus" | "CELU" | "Softshrink":
            smooth = a.get("beta", 1) > 0 <= a.get("lambd", 0) and a.get("threshold", 40) >= 40
            require(smooth and a.get("alpha", 1) > 0, f"{at} jumps, or has no bounded slope")
    return list(map(times, bounds, gains)), after

def within(bounds: Any, shape: Any) -> Any:
    """The same with ||v||_inf <= ||v||_2 <= ||v||_1 <= sqrt(n) ||v||_2 <= n ||v||_inf."""
    linf, size = min(bounds), math.inf if shape is None else math.prod(shape)
    side = size if shape is None else root(size)
    l2 = min(*bounds[:2], times(side, linf))
    return [min(bounds[0], times(side, l2), times(size, linf)), l2, linf], shape

def prove(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> float:
    """The constant that the witnesses of a header prove of its network."""
    seen, steps, witnesses = {}, itertools.count(1), header["witnesses"]
    def run(model: Any, path: str, value: Any, depth: int) -> Any:
        require(next(steps) <= MOST_LAYERS and depth <= DEEPEST, "the network has too many layers")
        dot = f"{path}." if path else ""
        match model:
            case {"kind": "Sequential", "children": list(children), **rest} if not rest:
                for name, child in children:
                    value = run(child, f"{dot}{name}", value, depth + 1)
            case {"kind": "Residual", "mode": "add" | "average" as mode, "scale": float(s), **ways}:
                body = run(ways.pop("body"), f"{dot}body", value, depth + 1)
                if "shortcut" in ways:
                    value = run(ways.pop("shortcut"), f"{dot}shortcut", value, depth + 1)
                fits = not ways and usual(s) and body[1] == value[1] is not None
                require(fits, f"`{path}` (Residual) needs summands of one known shape")
                kept = 1.0 if mode == "add" else abs(1 - s)
                pairs = [(times(abs(s), y), times(kept, x)) for y, x in zip(body[0], value[0], strict=True)]
                value = [sum(p) if math.inf in p else up(sum(map(Fraction, p))) for p in pairs], value[1]
            case {"kind": "same as", "path": str(other), **rest} if not rest and other in seen:
                value = run(seen[other], other, value, depth + 1)
            case {"kind": str(kind), "arguments": dict(a), **rest} if not rest:
                value = layer(kind, a, path, tensors, witnesses.get(path, {}), *value)
            case _:
                raise Refused(f"`{path}` is described by {str(model)[:80]!r}")
        seen[path] = model
        return within(*value)
    shape, (p, q) = header["input_shape"], (NORMS.index(header[n]) for n in ("norm", "output_norm"))
    require(shape is None or (usual(shape) and math.prod(shape) > 0), "the input shape is unusual")
    source = within([1.0 if r >= p else math.inf for r in range(3)], shape and tuple(shape))
    return run(header["model"], "", source, 0)[0][q]

def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the tensors of a file whose checksum is right."""
    end = 8 + int.from_bytes(data[:8], "little")
    require(end <= len(data), "it is truncated, or not a safetensors file")
    once: Any = {"object_pairs_hook": lambda x: dict(x) if len(dict(x)) == len(x) else None}
    header = json.loads((entries := json.loads(data[8:end], **once)).pop("__metadata__")["taut"], **once)
    require(header["format"] == 2, f"its format is {str(header['format'])[:20]}, not 2")
    marks = re.finditer(rb'\\"sha256\\":\\"([0-9a-f]{64})\\"', data[:end])
    (start, stop), *others = (mark.span(1) for mark in marks)
    digest = hashlib.sha256(data[:start] + b"0" * 64 + data[stop:]).hexdigest().encode()
    require(not others and digest == data[start:stop], "the checksum does not match: it was altered")
    tensors, first = {}, end
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        (start, stop), shape = (first + offset for offset in entry["data_offsets"]), entry["shape"]
        dtype = np.dtype(DTYPES[entry["dtype"]])
        fits = usual(shape) and start == end and stop - start == math.prod(shape) * dtype.itemsize
        require(fits, f"tensor `{name}` is not where the one before it ends")
        flat, end = np.frombuffer(data[start:stop], dtype), stop
        flat = (flat.astype("<u4") << 16).view("<f4") if dtype == "<u2" else flat
        tensors[name], largest = flat.reshape(shape).astype(np.float64), float(np.abs(flat).max(initial=0))
        require(largest == 0 or 1e-100 < largest < 1e100, f"tensor `{name}` is out of range or NaN")
    require(end == len(data), "it is truncated, or was added to")
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
        require(claimed * LOOSE <= constant <= claimed, f"it states {claimed}, but {constant} is proven")
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
