"""Wasserstein distances: exact, by critics, with confidence bounds; monitoring; problems of known distance.

`taut.wasserstein` is the estimator; the functions here are its parts.
"""

from taut.transport.cone_fit import ConeFit, fit_cones
from taut.transport.coupling_bound import coupling_upper_bound
from taut.transport.critic_selection import CRITICS, CriticName
from taut.transport.critics import (
    CriticFit,
    Sampler,
    dual_value,
    fit_critic,
    name_critic,
    network_critic,
    rescale_network,
)
from taut.transport.distance_bounds import bound_population_upper
from taut.transport.exact_solver import Transport, exact_transport
from taut.transport.feature_comparison import FeatureComparison, compare_features
from taut.transport.feature_scaling import SCALINGS, FeatureScaling, Scaling, fit_scaling
from taut.transport.funnel_problem import funnels
from taut.transport.mean_bounds import Method, bound_difference, bound_mean
from taut.transport.monitor import Change, Monitor, MonitoredBatch, fit_monitor
from taut.transport.monitor_file import hold_monitor, load_monitor, save_monitor
from taut.transport.problems import (
    Problem,
    absolute_value,
    cone,
    laplaces,
    shells,
    shifted_gaussians,
    three_cones,
)
from taut.transport.resampling import permutation_p_value
from taut.transport.saved_critic import SavedCritic, load_critic
from taut.transport.skewness import pursue_centres, skewed_directions
from taut.transport.two_sample_test import two_sample_p_value
from taut.transport.wasserstein_distance import wasserstein
from taut.transport.wasserstein_result import WassersteinResult

__all__ = [
    "CRITICS",
    "SCALINGS",
    "Change",
    "ConeFit",
    "CriticFit",
    "CriticName",
    "FeatureComparison",
    "FeatureScaling",
    "Method",
    "Monitor",
    "MonitoredBatch",
    "Problem",
    "Sampler",
    "SavedCritic",
    "Scaling",
    "Transport",
    "WassersteinResult",
    "absolute_value",
    "bound_difference",
    "bound_mean",
    "bound_population_upper",
    "compare_features",
    "cone",
    "coupling_upper_bound",
    "dual_value",
    "exact_transport",
    "fit_cones",
    "fit_critic",
    "fit_monitor",
    "fit_scaling",
    "funnels",
    "hold_monitor",
    "laplaces",
    "load_critic",
    "load_monitor",
    "name_critic",
    "network_critic",
    "permutation_p_value",
    "pursue_centres",
    "rescale_network",
    "save_monitor",
    "shells",
    "shifted_gaussians",
    "skewed_directions",
    "three_cones",
    "two_sample_p_value",
    "wasserstein",
]
