r"""Björck orthonormalisation: the paper's iteration, of every order, and its matrix-vector form.

The polar factor is $W (W^\top W)^{-1/2}$. With $Q = I - A^\top A$ and the Taylor series
$(1 - q)^{-1/2} = \sum_k c_k q^k$, $c_k = \binom{2k}{k} 4^{-k}$, one step of order $p$ is

$$A \leftarrow A \sum_{k=0}^{p} c_k Q^k.$$

Singular values move on their own: $\sigma \mapsto \sigma \sum_{k \le p} c_k (1 - \sigma^2)^k$. Since
every $c_k > 0$, values in $(0, 1]$ stay in $(0, 1]$ and grow towards 1: once scaled below 1, a matrix
stays feasible after any number of steps.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from taut.errors import ArgumentError, NotConvergedError, check_choice, check_count, check_positive

_MOST_STEPS = 100


def _amax(x: Tensor) -> Tensor:
    return x.amax((-2, -1), keepdim=True)


def _or_one(x: Tensor) -> Tensor:
    """`x`, with 1 in place of 0: a zero matrix stays zero, and its derivative finite."""
    return torch.where(x > 0, x, 1.0)


_SCALES: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda w: math.sqrt(w.shape[-2] * w.shape[-1]) * _amax(w.abs()),
    "one": lambda w: math.sqrt(w.shape[-1]) * _amax(w.abs().sum(-2, keepdim=True)),
    "inf": lambda w: math.sqrt(w.shape[-2]) * _amax(w.abs().sum(-1, keepdim=True)),
    "gram": lambda w: _or_one(_amax((w.mT @ w).abs().sum(-1, keepdim=True))).sqrt(),
    "spectral": lambda w: torch.linalg.matrix_norm(w, 2, keepdim=True),
}
SCALINGS = tuple(_SCALES)


def bound_by_scaling(weight: Tensor, scaling: str) -> Tensor:
    r"""A number of at least $\|W\|_2$ (in exact arithmetic) to divide by before the first step.

    | scaling | bound | |
    |---|---|---|
    | `"max"` | $\sqrt{mn}\,\max_{ij} |w_{ij}|$ | the paper's |
    | `"one"` | $\sqrt{n}\,\|W\|_1$ | the paper's |
    | `"inf"` | $\sqrt{m}\,\|W\|_\infty$ | the paper's |
    | `"gram"` | $\|W^\top W\|_\infty^{1/2}$ | exact for orthonormal columns |
    | `"spectral"` | $\|W\|_2$ | by a singular value decomposition: slow, tight |

    Args:
        weight: `(..., m, n)`; the result is `(..., 1, 1)`.
        scaling: one of the names above.

    Example:
        >>> bound_by_scaling(torch.eye(4), "max").item(), bound_by_scaling(torch.eye(4), "gram").item()
        (4.0, 1.0)
    """
    check_choice("bound_by_scaling", "scaling", scaling, SCALINGS)
    return _SCALES[scaling](weight)


def bjorck(
    weight: Tensor,
    *,
    order: int = 1,
    beta: float = 0.5,
    num_steps: int | None = None,
    tol: float | None = None,
    scaling: str | None = "gram",
) -> Tensor:
    r"""Moves a matrix towards its polar factor, differentiably.

    With a `scaling` the result has norm at most 1 after any number of steps; without one, singular
    values above $\sqrt 3$ (order 1) may diverge.

    Args:
        weight: `(..., out, in)`, tall, wide or square.
        order: `p >= 1`, the degree of the series.
        beta: the step of Parseval networks, $A \leftarrow (1 + \beta) A - \beta A A^\top A$; 0.5 is
            Björck's. Only for order 1.
        num_steps: number of steps. Give this or `tol`.
        tol: largest $\|A^\top A - I\|_F$ of a matrix at which to stop.
        scaling: what to divide by first (see `bound_by_scaling`), or None.

    Raises:
        NotConvergedError: `tol` was not reached; `polar` always gets there.

    Example:
        >>> q = bjorck(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), tol=1e-5)
        >>> torch.allclose(q @ q.T, torch.eye(2), atol=1e-5)
        True
    """
    check_count("bjorck", "order", order)
    check_positive("bjorck", "beta", beta)
    if order > 1 and beta != 0.5:
        rule, got = "must be 0.5 for orders above 1", f"beta={beta}, order={order}"
        raise ArgumentError("bjorck", "beta", rule, got, "Use order=1 for Parseval steps.")
    if (num_steps is None) == (tol is None):
        rule = "give `num_steps` or `tol`, and only one of them"
        raise ArgumentError("bjorck", rule=rule, got=f"num_steps={num_steps}, tol={tol}")
    if num_steps is not None:
        check_count("bjorck", "num_steps", num_steps, minimum=0)
    wide = weight.shape[-2] < weight.shape[-1]
    a = weight.mT if wide else weight
    if scaling is not None:
        if wide:
            scaling = {"one": "inf", "inf": "one"}.get(scaling, scaling)
        # Dividing by the largest entry first keeps the squares inside from overflow and underflow;
        # the bounds are homogeneous, so it cancels out of the derivative.
        a = a / _or_one(_amax(a.detach().abs()))
        a = a / _or_one(bound_by_scaling(a, scaling))
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    for _ in range(_MOST_STEPS if num_steps is None else num_steps):
        rest = eye - a.mT @ a
        if tol is not None and bool((torch.linalg.matrix_norm(rest) <= tol).all()):
            break
        a = a + beta * (a @ rest) if order == 1 else a @ _inverse_root_series(rest, eye, order)
    else:
        if tol is not None:
            rule = (
                f"the residual must fall to tol={tol} within {_MOST_STEPS} steps and did "
                f"not for a matrix of shape {tuple(weight.shape)}: it is close to "
                "rank-deficient, or tol is below rounding"
            )
            raise NotConvergedError("bjorck", rule=rule, remedy="Use polar, or a larger tol.")
    return a.mT if wide else a


def _inverse_root_series(rest: Tensor, eye: Tensor, order: int) -> Tensor:
    """The Taylor polynomial of (I - rest)^(-1/2), by Horner's rule."""
    coefficients = [math.comb(2 * k, k) / 4**k for k in range(order + 1)]
    series = coefficients[-1] * eye
    for coefficient in reversed(coefficients[:-1]):
        series = coefficient * eye + series @ rest
    return series


def apply_bjorck(weight: Tensor, x: Tensor, num_steps: int) -> Tensor:
    r"""The product of inputs with the matrix that `num_steps` Björck steps of order 1 lead to.

    Needs matrix-vector products only: with $M_k = A_k A_k^\top$,

    $$A_{k+1} v = \tfrac32 A_k v - \tfrac12 M_k A_k v, \qquad
      M_{k+1} u = \tfrac94 M_k u - \tfrac32 M_k^2 u + \tfrac14 M_k^3 u,$$

    so $O(3^k)$ products: cheaper than the matrix form for few vectors and up to about four steps.
    Equal to `x @ bjorck(weight, num_steps=num_steps, scaling=None).mT` up to rounding.

    Args:
        weight: `(out, in)`, with norm at most 1 (divide by `bound_by_scaling` first).
        x: `(..., in)`.
        num_steps: `k >= 0`.

    Example:
        >>> w, x = torch.tensor([[0.8, 0.0], [0.0, 0.5]]), torch.ones(2)
        >>> torch.allclose(apply_bjorck(w, x, 2), bjorck(w, num_steps=2, scaling=None) @ x)
        True
    """
    check_count("apply_bjorck", "num_steps", num_steps, minimum=0)

    def apply_m(u: Tensor, step: int) -> Tensor:
        if step == 0:
            return (u @ weight) @ weight.mT
        first = apply_m(u, step - 1)
        second = apply_m(first, step - 1)
        return 2.25 * first - 1.5 * second + 0.25 * apply_m(second, step - 1)

    y = x @ weight.mT
    for step in range(num_steps):
        y = 1.5 * y - 0.5 * apply_m(y, step)
    return y
