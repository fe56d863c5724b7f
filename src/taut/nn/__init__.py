"""Torch modules that are 1-Lipschitz by construction, and stay so in training."""

from taut.nn.activations import Abs, FullSort, GroupSort, Householder, MaxMin, Maxout
from taut.nn.builders import mlp
from taut.nn.constrained import ConstrainedLinear
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.rows import L1Linear, LinfLinear, MixedLinear
from taut.nn.scale import Scale
from taut.nn.spectral import ParsevalLinear, SpectralLinear

__all__ = [
    "Abs",
    "ConstrainedLinear",
    "FullSort",
    "GroupSort",
    "Householder",
    "L1Linear",
    "LinfLinear",
    "MaxMin",
    "Maxout",
    "MixedLinear",
    "OrthonormalLinear",
    "ParsevalLinear",
    "Scale",
    "SpectralLinear",
    "mlp",
]
