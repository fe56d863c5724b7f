"""Wasserstein distances by Lipschitz critics, and problems whose distance is known."""

from taut.wasserstein.cone_fit import ConeFit, fit_cones
from taut.wasserstein.cones import ConeCritic
from taut.wasserstein.critics import CriticFit, Sampler, dual_value, fit_critic
from taut.wasserstein.funnels import funnels
from taut.wasserstein.problems import (
    Problem,
    absolute_value,
    cone,
    laplaces,
    shells,
    shifted_gaussians,
    three_cones,
)

__all__ = [
    "ConeCritic",
    "ConeFit",
    "CriticFit",
    "Problem",
    "Sampler",
    "absolute_value",
    "cone",
    "dual_value",
    "fit_cones",
    "fit_critic",
    "funnels",
    "laplaces",
    "shells",
    "shifted_gaussians",
    "three_cones",
]
