"""Wasserstein distances by Lipschitz critics, and problems whose distance is known."""

from taut.wasserstein.critics import CriticFit, Sampler, dual_value, fit_critic
from taut.wasserstein.problems import Problem, absolute_value, cone, three_cones

__all__ = [
    "CriticFit",
    "Problem",
    "Sampler",
    "absolute_value",
    "cone",
    "dual_value",
    "fit_critic",
    "three_cones",
]
