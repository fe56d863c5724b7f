"""Wasserstein distances by Lipschitz critics, and problems whose distance is known.

The module can be called: `taut.wasserstein(x, y)` is `taut.wasserstein.wasserstein(x, y)`.
"""

import sys
from types import ModuleType
from typing import Any

from taut.wasserstein.cone_fit import ConeFit, fit_cones
from taut.wasserstein.cones import ConeCritic
from taut.wasserstein.confidence import bound_mean
from taut.wasserstein.coupling import coupling_upper_bound
from taut.wasserstein.critics import CriticFit, Sampler, dual_value, fit_critic
from taut.wasserstein.difference import bound_difference
from taut.wasserstein.estimator import wasserstein
from taut.wasserstein.exact import Transport, exact_transport
from taut.wasserstein.funnel_benchmark import funnels
from taut.wasserstein.permutation import permutation_p_value
from taut.wasserstein.population import bound_population_upper
from taut.wasserstein.problems import (
    Problem,
    absolute_value,
    cone,
    laplaces,
    shells,
    shifted_gaussians,
    three_cones,
)
from taut.wasserstein.result import WassersteinResult
from taut.wasserstein.saved import SavedCritic, load_critic
from taut.wasserstein.scaling import FeatureScaling

__all__ = [
    "ConeCritic",
    "ConeFit",
    "CriticFit",
    "FeatureScaling",
    "Problem",
    "Sampler",
    "SavedCritic",
    "Transport",
    "WassersteinResult",
    "absolute_value",
    "bound_difference",
    "bound_mean",
    "bound_population_upper",
    "cone",
    "coupling_upper_bound",
    "dual_value",
    "exact_transport",
    "fit_cones",
    "fit_critic",
    "funnels",
    "laplaces",
    "load_critic",
    "permutation_p_value",
    "shells",
    "shifted_gaussians",
    "three_cones",
    "wasserstein",
]


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> WassersteinResult:
        return wasserstein(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
