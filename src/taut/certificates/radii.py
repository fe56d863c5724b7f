r"""Certified radii from margins, Lipschitz constants and roundoff.

A prediction $t$ stands as long as every difference $z_t - z_i$ stays positive. At a point $x'$ within
$r$ of $x$, a difference of $m_i$ at $x$ is still at least $m_i - L_i r$, where

- if the outputs are $K$-Lipschitz in norm $q$, $L = 2^{1 - 1/q} K$, because
  $\|e_t - e_i\|$ in the dual norm of $q$ is 1, $\sqrt 2$ or 2 for $q = 1, 2, \infty$;
- if a last linear layer follows features that are $K_h$-Lipschitz,
  $L_i = K_h \|w_t - w_i\|_{q^*}$, which is never larger;
- for one output, whose sign is the prediction, $L = K$.

The smallest over $q$ counts. The roundoff of the evaluation at $x$, $\varepsilon$, and that of
execution at $x'$, at most $\alpha + \beta r$, are subtracted: $r = (m - \varepsilon - \alpha)/(L + \beta)$.
"""

import math

import torch
from torch import Tensor

from taut.certificates.rounded_tensor import LastLayer, RoundedTensor, norms_up, up
from taut.rules import Constants

# The dual norms of e_t - e_i, for output norms L1, L2, LINF.
_PAIR = (1.0, math.nextafter(math.sqrt(2), 2), 2.0)


def bound_radius(margin: Tensor, error: Tensor, rate: Tensor) -> Tensor:
    """`(margin - error) / rate` rounded down; 0 where that is not a positive number."""
    left = (margin * (1 - 2.0**-50) - error) * (1 - 2.0**-50)
    radius = left / rate * (1 - 2.0**-50)
    return torch.where(radius > torch.finfo(radius.dtype).tiny, radius, 0.0)


def sign_radii(
    run: RoundedTensor, constants: Constants, prediction: Tensor
) -> tuple[Tensor, Tensor]:
    """Margins and radii of the sign of one output, `(batch,)` each; `prediction` is 1 or 0."""
    margin = torch.where(prediction == 1, run.value.flatten(), -run.value.flatten())
    bound = run.bound
    error = up(bound.error.values.amin(0) + bound.far.values.amin(0))
    rate = up(constants.values.amin().to(margin) + bound.slope.values.amin())
    return margin, bound_radius(margin, error, rate)


def vector_radii(run: RoundedTensor, constants: Constants, margin: Tensor) -> Tensor:
    """Radii for every other class, `(batch, classes)`, of a vector map with these constants."""
    bound = run.bound
    pair = run.value.new_tensor(_PAIR)
    parts = (bound.error.values, bound.far.values)
    error = up(sum((part * pair[:, None]).amin(0) for part in parts))  # type: ignore[arg-type]
    rate = up((constants.values.to(pair) * pair).amin() + (bound.slope.values * pair).amin())
    return bound_radius(margin, error[:, None], rate)


class PairRadii:
    """Radii by the differences of rows of the last layer, which are bounded once for a class."""

    def __init__(self) -> None:
        self._rows: dict[int, Tensor] = {}

    def __call__(self, last: LastLayer, prediction: Tensor, margin: Tensor) -> Tensor:
        """Radii for every other class, `(batch, classes)`."""
        classes, class_index = prediction.unique(return_inverse=True)
        if not len(classes):
            return margin
        rows = torch.stack([self._differences_of(last.weight, int(t)) for t in classes], 1)
        dual = rows[:, class_index] * last.factor
        pair = margin.new_tensor(_PAIR)

        def bound(carried: Constants, fresh: Constants | None) -> Tensor:
            moved = carried.values.reshape(3, -1, 1)
            routes = (dual * moved).nan_to_num(nan=math.inf, posinf=math.inf)
            total = up(routes.amin(0))
            if fresh is None:
                return total
            return up(total + (fresh.values.reshape(3, -1) * pair[:, None]).amin(0)[:, None])

        features, fresh = last.features, last.fresh
        error = up(bound(features.error, fresh.error) + bound(features.far, fresh.far))
        rate = up(bound(features.reach, None) + bound(features.slope, fresh.slope))
        return bound_radius(margin, error, rate)

    def _differences_of(self, weight: Tensor, t: int) -> Tensor:
        r"""$\|w_t - w_i\|_{q^*}$ for $q = 1, 2, \infty$ and every `i`, `(3, classes)`."""
        if t not in self._rows:
            self._rows[t] = up(norms_up(weight[t] - weight)).flip(0)
        return self._rows[t]


def differences(logits: Tensor, prediction: Tensor) -> Tensor:
    """The margin of the predicted class over each other class; infinity for itself."""
    index = prediction[:, None]
    return (logits.gather(1, index) - logits).scatter(1, index, math.inf)


def radii_after_rounding(radius: Tensor, length: Tensor, unit: float) -> Tensor:
    r"""Radii of inputs that are rounded before the network sees them, `(batch,)`.

    Rounding moves both points by at most $u$ of their length, $\|z\|$ and $\|z'\| \le \|z\| + r$, so
    of a radius $r$ around the rounded point $r (1 - 2u) - 3 u \|z\|$ remains.

    Args:
        radius: radii around the rounded points.
        length: their lengths.
        unit: $u$, at most $2^{-20}$.
    """
    remaining = radius * (1 - 2 * unit) - 3 * unit * length * (1 + 2.0**-40)
    # Infinity minus infinity: nothing is known of a point that overflows.
    return torch.where(remaining > 0, remaining, 0.0)
