r"""Theorem 3 made constructive: a network through given points, of slope at most 1."""

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, DtypeError, NonFiniteError, check_positive
from taut.lattice.affine_maps import as_linear
from taut.linalg import gamma, project_l1_ball, project_l2_ball, project_linf_ball
from taut.nn import MaxMin
from taut.norms import L1, L2, LINF, Norm, NormLike, as_norm

_PROJECTIONS = {L1: project_l1_ball, L2: project_l2_ball, LINF: project_linf_ball}


def interpolate(
    points: Tensor, values: Tensor, p: NormLike = L2, tol: float = 5e-7
) -> nn.Sequential:
    r"""A network of slope at most 1 in the p-norm that takes given values at given points.

    **Theorem.** Let $|v_i - v_j| \le \|x_i - x_j\|_p$ for all $i, j$. There is a network $f$ of
    the class $LN_p$ (first weight $\|W_1\|_{p,\infty} \le 1$, all others $\|W\|_\infty \le 1$,
    MaxMin between them), so 1-Lipschitz in the p-norm, with $f(x_k) = v_k$ for all $k$. For every
    1-Lipschitz function $g$ with $g(x_k) = v_k$ and every $x$,
    $|f(x) - g(x)| \le 2 \min_k \|x - x_k\|_p$: points that are dense enough determine it.

    *Proof.* Let $u_{ij}$ be the dual vector of $x_j - x_i$: $\|u_{ij}\|_q = 1$ and
    $u_{ij} \cdot (x_j - x_i) = \|x_j - x_i\|_p$. The affine functions

    $$f_{ij}(x) = v_i + s_{ij} \cdot (x - x_i), \qquad
      s_{ij} = \frac{v_j - v_i}{\|x_j - x_i\|_p} u_{ij}, \qquad f_{ii}(x) = v_i,$$

    have slopes $\|s_{ij}\|_q \le 1$ and pass through both points. Take
    $f(x) = \max_i \min_j f_{ij}(x)$ and $F_i = \min_j f_{ij}$. All $f_{ij}(x_i) = v_i$, so
    $F_i(x_i) = v_i$; and $F_i(x_k) \le f_{ik}(x_k) = v_k$. Hence
    $f(x_k) = \max_i F_i(x_k) = v_k$. Minima and maxima are those of `taut.lattice.minimum` and
    `maximum`. The second claim is the triangle inequality through the nearest $x_k$. $\square$

    The proof uses no more than: for each $i$, each $k$ has some $j$ with $f_{ij}(x_k) \le v_k$; and
    each $k$ has some $i$ with $F_i(x_k) \ge v_k$. So pieces that no $k$ needs are dropped,
    greedily: of the $n^2$ there remain a few for each point, and a single one for an affine $f$.

    Args:
        points: `(n, d)`, float32 or float64, one point at least.
        values: `(n,)`.
        p: the norm of the points: `L1`, `L2`, `LINF` or their names.
        tol: by how much $|v_i - v_j|$ may pass $\|x_i - x_j\|_p$, for data that were rounded.

    Returns:
        A `Sequential` of `torch.nn.Linear` and `MaxMin` from `d` inputs to 1 output, in the dtype of
        `points`. The norms of its weights as stored are at most 1; `bound_operator_norm` proves it.
        $|f(x_k) - v_k|$ is at most the excess that `tol` lets pass plus
        $(14d + 64)\,u\,(\max_i |v_i| + \max_i \|x_i\|_p)$ of rounding, to first order in the unit
        roundoff $u$; for 64 points in $[-1, 1]^3$ it is near 1e-7 in float32, 1e-16 in float64.

    Raises:
        ArgumentError: when two values differ by more than their points do; the message names them.

    Example:
        >>> points = torch.tensor([[-1.0], [0.0], [2.0]])
        >>> network = interpolate(points, points.abs().squeeze(1))
        >>> network(points).squeeze(1).round(decimals=6).tolist()
        [1.0, 0.0, 2.0]
    """
    norm = as_norm(p, "interpolate")
    check_positive("interpolate", "tol", tol)
    _check_data(points, values)
    x, v = points.detach().double(), values.detach().to(points.device, torch.float64)
    _check_slopes(x, v, norm, tol)
    slack = torch.finfo(points.dtype).eps * float(v.abs().amax() + norm.vector(x).amax())
    slopes: list[Tensor] = []
    lowest: list[Tensor] = []
    for i in range(len(x)):
        candidates = _slopes_from(i, x, v, norm, points.dtype)
        heights = v[i] + candidates.double() @ (x - x[i]).T
        kept = _cover(heights <= v + slack)
        slopes.append(candidates[kept])
        lowest.append(heights[kept].amin(0))
    groups = _cover(torch.stack(lowest) >= v - slack)
    return _max_of_mins([slopes[i] for i in groups], x[groups], v[groups])


def _slopes_from(i: int, x: Tensor, v: Tensor, norm: Norm, dtype: torch.dtype) -> Tensor:
    """The slopes from point `i` to all others `(n, d)`, of dual norm at most 1 as they are stored."""
    steps = x - x[i]
    lengths = norm.vector(steps).unsqueeze(1)
    ratios = torch.where(lengths > 0, (v - v[i]).unsqueeze(1) / lengths, 0.0).clamp(-1, 1)
    if norm == L2:
        duals = torch.where(lengths > 0, steps / lengths, 0.0)
    elif norm == L1:
        duals = steps.sign()
    else:
        longest = steps.abs().argmax(1, keepdim=True)
        duals = torch.zeros_like(steps).scatter(1, longest, steps.gather(1, longest).sign())
    # A little inside the ball, so that sums of squares rounded upwards prove it.
    radius = 1 - 4 * gamma(x.shape[1] + 4) if norm == L2 else 1.0
    return _PROJECTIONS[norm.dual]((ratios * duals).to(dtype), radius)


def _cover(serves: Tensor) -> list[int]:
    """Few candidates that serve all items between them; candidate `k` serves item `k` always.

    Greedy: the candidate that serves most of those left, until none is left.

    Args:
        serves: `(n, n)`, candidate by item.
    """
    serves = serves | torch.eye(len(serves), dtype=torch.bool, device=serves.device)
    as_numbers = serves.float()  # a product counts faster than a sum of booleans
    left = torch.ones_like(as_numbers[0])
    chosen: list[int] = []
    while left.any():
        chosen.append(int((as_numbers @ left).argmax()))
        left = left * ~serves[chosen[-1]]
    return chosen


def _max_of_mins(slopes: list[Tensor], x: Tensor, v: Tensor) -> nn.Sequential:
    """The maximum over groups of the minimum over the pieces `v[i] + slopes[i] (x - x[i])`."""
    groups, pieces = len(slopes), max(map(len, slopes))
    # Piece by piece, all groups in each, so that halves compare pieces of the same group. Short
    # groups repeat a piece.
    table = torch.stack([torch.cat([s, s[-1:].expand(pieces - len(s), -1)]) for s in slopes], dim=1)
    weight = table.flatten(0, 1)
    bias = (v - (table.double() * x).sum(-1)).flatten().to(weight.dtype)
    modules: list[nn.Module] = []
    for count, size, largest in ((pieces, groups, False), (groups, 1, True)):
        while count > 1:
            if count % 2:
                weight = torch.cat([weight, weight[-size:]])
                bias = None if bias is None else torch.cat([bias, bias[-size:]])
                count += 1
            modules += [as_linear(weight, bias), MaxMin(dim=-1)]
            select = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
            weight, bias = select.chunk(2)[0 if largest else 1], None
            count //= 2
    return nn.Sequential(*modules, as_linear(weight, bias))


def _check_data(points: Tensor, values: Tensor) -> None:
    if points.dtype not in (torch.float32, torch.float64) or not values.dtype.is_floating_point:
        rule = "must be float32 or float64 and `values` floating-point"
        got = f"{points.dtype} and {values.dtype}"
        raise DtypeError("interpolate", "points", rule, got, "Convert with .float() or .double().")
    if points.dim() != 2 or 0 in points.shape or values.shape != points.shape[:1]:
        rule = "must be (n, d) and `values` (n,), with n and d at least 1"
        got = f"{tuple(points.shape)} and {tuple(values.shape)}"
        raise ArgumentError("interpolate", "points", rule, got)
    if not (torch.isfinite(points).all() and torch.isfinite(values).all()):
        rule, got = "and `values` must be finite", "NaN or infinity"
        raise NonFiniteError("interpolate", "points", rule, got, "Drop those rows first.")


def _check_slopes(x: Tensor, v: Tensor, norm: Norm, tol: float) -> None:
    worst, pair = tol, None
    for i in range(len(x) - 1):
        excess = (v[i + 1 :] - v[i]).abs() - norm.vector(x[i + 1 :] - x[i])
        j = int(excess.argmax())
        if excess[j] > worst:
            worst, pair = float(excess[j]), (i, i + 1 + j)
    if pair is None:
        return
    i, j = pair
    rise, run = float((v[j] - v[i]).abs()), float(norm.vector(x[j] - x[i]))
    slope = rise / run if run else float("inf")
    rule = f"must have slope at most 1 in {norm}"
    got = (
        f"slope {slope:.6g} between points {i} and {j}: the values differ by {rise:.6g} "
        f"over a distance of {run:.6g}"
    )
    remedy = "Divide the values by their largest slope, or drop one of two points that coincide."
    raise ArgumentError("interpolate", "values", rule, got, remedy)
