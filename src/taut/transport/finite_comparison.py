"""The distance between two finite sets, with proven bounds."""

import math

import torch

from taut.audit import bound_lipschitz
from taut.bounds import Bound, Estimate, Interval
from taut.nn import ConeCritic
from taut.norms import L2
from taut.transport.comparison import NO_UPPER, POTENTIAL, SUBJECT, Comparison, divide
from taut.transport.coupling_bound import coupling_upper_bound
from taut.transport.critic_selection import SelectedCritic, check_squares
from taut.transport.critics import name_critic
from taut.transport.distance_bounds import bound_finite_lower
from taut.transport.exact_solver import exact_transport
from taut.transport.feature_scaling import column_ranges
from taut.transport.input_data import find_unseen, load_rows, note_constant
from taut.transport.line_transport import line_distance, line_potential
from taut.transport.wasserstein_result import WassersteinResult

# Exact transport of finite sets up to this many pairs: about 300 MB, a minute or two.
_MOST_PAIRS = 40_000_000


class FiniteComparison(Comparison):
    """A comparison of two finite sets."""

    def compare(self) -> WassersteinResult:
        """Bounds the distance of the two finite sets themselves."""
        x, y = load_rows(self.x, SUBJECT), load_rows(self.y, SUBJECT)
        points = torch.cat([x, y])
        self.notes += note_constant(self.columns, *column_ranges(points))
        self._set_unseen(find_unseen(self.encoding, points))
        scale = self._fit_scaling(points)
        self._report("transport", 0, 1)
        interval = None
        if self.x.dim == 1:
            # In the rows' own unit, so that no rounding of the scaling is left out.
            x, y = (torch.where(side.isnan(), scale.shift, side) for side in (x, y))
            distance, unit = line_distance(x[:, 0], y[:, 0]), scale.scale.item()
            interval = Interval(divide(distance.lower, unit), divide(distance.upper, unit))
        x, y = scale(points).split([len(x), len(y)])
        del points
        if interval is not None:
            check_squares(torch.cat([x, y]))
            selected = SelectedCritic(POTENTIAL, line_potential(x[:, 0], y[:, 0]))
        elif len(x) * len(y) <= _MOST_PAIRS:
            exact = exact_transport(x, y)
            interval = exact.interval
            critic = ConeCritic.from_points(exact.anchors, -exact.offsets)
            selected = SelectedCritic(POTENTIAL, critic)
        else:
            selected = self._select((x, y), (x, y))
        lipschitz = bound_lipschitz(selected.critic, "l2", (self.x.dim,))
        evaluate = self._evaluation(selected.critic)
        sx, sy = evaluate(x), evaluate(y)
        values = torch.cat([sx.values, sy.values])
        if interval is None:
            lower = bound_finite_lower(sx, sy, lipschitz.value, name=name_critic(selected.kind))
            self._report("transport", 0, 1)
            interval = Interval(lower, coupling_upper_bound(x, y, generator=self.generator))
        self._report("transport", 1, 1)
        lower, upper = interval.lower, interval.upper
        estimate = Estimate((lower.value + upper.value) / 2, L2, "middle of the interval")
        if self.unseen:
            upper = Bound(math.inf, L2, "upper", NO_UPPER)
            estimate = Estimate(lower.value, L2, "the lower bound; may be too low")
        return self._result(
            selected,
            scale,
            (sx, sy),
            lipschitz=lipschitz,
            limits=(values.min().item(), values.max().item()),
            estimate=estimate,
            lower=lower,
            upper=upper,
            upper_is_useful=not self.unseen,
            p_value=None,
            rows=(len(x), len(y)),
            finite=True,
        )
