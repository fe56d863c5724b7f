r"""Radii by interval propagation: the largest box around an input with a proven prediction.

A box $B_r = \{x' : \|x' - x\|_\infty \le r\}$, cut at the range of the data, keeps its prediction $t$
if every margin $f_t - f_i$ is proven positive on all of it. Behind a last dense layer a margin is a
linear map of the features, $(w_t - w_i) h + b_t - b_i$, and bounded as one: the ends of single outputs
are attained at different features, so their difference is never larger.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from taut.certificates.interval_propagation import Box, BoxInterpreter, LastBoxes

InputRange = tuple[float, float]
_START = 2.0**-4
_NUM_SCALES = 40  # powers of two tried below and above the first radius
_NUM_STEPS = 12  # bisections: radii are found to a relative 2^-12


def interval_radii(
    interpreter: BoxInterpreter,
    x: Tensor,
    prediction: Tensor,
    proven_radius: Tensor,
    input_range: InputRange | None,
    target: float | None = None,
) -> Tensor:
    """For each input a radius of a box on which the prediction is proven, by bisection.

    Args:
        interpreter: of the network.
        x: `(batch, ...)`, float64, within the range.
        prediction: `(batch,)`, the predicted classes; 1 or 0 for the sign of one output.
        proven_radius: `(batch,)`, radii that are proven already: only larger ones are searched.
        input_range: range of all inputs.
        target: the only radius to try, which takes no bisection.

    Returns:
        `(batch,)`, float64, at least `proven_radius`; infinity where the prediction holds on the whole
        range.
    """
    low, high = (-math.inf, math.inf) if input_range is None else input_range

    def proven(rows: Tensor, radius: Tensor) -> Tensor:
        centre, width = x[rows], radius.view(-1, *(1,) * (x.dim() - 1))
        inf = torch.full_like(centre, math.inf)
        lower = torch.nextafter(centre - width, -inf).clamp(min=low)
        upper = torch.nextafter(centre + width, inf).clamp(max=high)
        return smallest_margin(interpreter.run(Box(lower, upper)), prediction[rows]) > 0

    if target is None:
        return _search(proven, proven_radius, math.nextafter(high - low, math.inf))
    best, rows = proven_radius.clone(), (proven_radius <= target).nonzero()[:, 0]
    # Just above it: a certificate covers the perturbations below its radius.
    trial = proven_radius.new_full((len(rows),), math.nextafter(target, math.inf))
    holds = proven(rows, trial)
    best[rows[holds]] = trial[holds]
    return best


def _search(
    proven: Callable[[Tensor, Tensor], Tensor], proven_radius: Tensor, whole: float
) -> Tensor:
    """The largest radii found to be proven: powers of two times the first, then bisection.

    Each radius is proven by itself, so nothing depends on an order among them.
    """
    best = proven_radius.clone()
    rows = (best < whole).nonzero()[:, 0]
    # Just above a proven radius: where that fails, bisection would gain next to nothing.
    trial = torch.where(best > 0, best * (1 + 2.0**-6), min(_START, whole))[rows]
    first = proven(rows, trial)
    best[rows[first]] = trial[first]
    failed = torch.full_like(best, math.inf)
    failed[rows[~first]] = trial[~first]
    growing, shrinking = rows[first], rows[~first & (proven_radius[rows] == 0)]
    for factor, moving in ((2.0, growing), (0.5, shrinking)):
        trial = (best if factor > 1 else failed)[moving]
        for _ in range(_NUM_SCALES):
            trial = (trial * factor).clamp(max=whole)
            if not len(moving):
                break
            holds = proven(moving, trial)
            best[moving[holds]], failed[moving[~holds]] = trial[holds], trial[~holds]
            left = holds & (trial < whole) if factor > 1 else ~holds
            moving, trial = moving[left], trial[left]
    best[best >= whole] = math.inf
    between = ((best > proven_radius) & failed.isfinite() & (best < failed)).nonzero()[:, 0]
    for _ in range(_NUM_STEPS if len(between) else 0):
        trial = (best[between] + failed[between]) / 2
        holds = proven(between, trial)
        best[between[holds]], failed[between[~holds]] = trial[holds], trial[~holds]
    return best


def smallest_margin(box: Box, prediction: Tensor) -> Tensor:
    """A lower bound of the margin over each box, `(batch,)`; of one output, of its signed value."""
    if box.shape in ((), (1,)):
        return torch.where(prediction == 1, box.lower.flatten(), -box.upper.flatten())
    others = torch.ones_like(box.lower, dtype=torch.bool).scatter(1, prediction[:, None], False)
    margins = box.lower.gather(1, prediction[:, None]) - box.upper
    margins = torch.nextafter(margins, torch.full_like(margins, -math.inf))
    if box.last is not None:
        margins = torch.fmax(margins, _linear_margins(box.last, prediction))
    return margins.where(others, math.inf).amin(1)


def _linear_margins(last: LastBoxes, prediction: Tensor) -> Tensor:
    """Lower bounds of all margins as linear maps of the features, `(batch, classes)`."""
    lower, upper = last.features.lower, last.features.upper
    centre = (lower + upper) / 2
    radius = torch.maximum(upper - centre, centre - lower) * (1 + 2.0**-50)
    margins = torch.empty_like(last.slack)
    for t in prediction.unique().tolist():
        rows = prediction == t
        weight = last.weight[t] - last.weight
        margins[rows] = centre[rows] @ weight.T - radius[rows] @ weight.abs().T
        if last.bias is not None:
            margins[rows] += last.bias[t] - last.bias
    # Of both outputs: once for their executions, once for the roundings here, of which each term of
    # the sums sees two more than the layer's own.
    slack = last.slack + last.slack.gather(1, prediction[:, None])
    return margins - 2 * slack * (1 + 2.0**-40)
