"""Torch modules that are 1-Lipschitz by construction, and stay so in training."""

from taut.nn.activations import Abs, FullSort, GroupSort, Householder, MaxMin, Maxout
from taut.nn.balls import L1Linear, LinfConv1d, LinfConv2d, LinfLinear, MixedLinear
from taut.nn.builders import make_activation, mlp
from taut.nn.centering import Centering
from taut.nn.cone_critic import ConeCritic
from taut.nn.constrained import ConstrainedLayer, ConstrainedLinear
from taut.nn.conv import ConstrainedConv
from taut.nn.conv_orthonormal import (
    OrthonormalConv1d,
    OrthonormalConv2d,
    OrthonormalConvTranspose1d,
    OrthonormalConvTranspose2d,
)
from taut.nn.conv_spectral import (
    SpectralConv1d,
    SpectralConv2d,
    SpectralConv3d,
    SpectralConvTranspose1d,
    SpectralConvTranspose2d,
    SpectralConvTranspose3d,
)
from taut.nn.distance import LinfDistance, SortDistance
from taut.nn.downsampling import InvertibleDownsampling2d, L2Pool2d
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.residual import Residual
from taut.nn.scale import Scale
from taut.nn.spectral import ParsevalLinear, SpectralLinear

__all__ = [
    "Abs",
    "Centering",
    "ConeCritic",
    "ConstrainedConv",
    "ConstrainedLayer",
    "ConstrainedLinear",
    "FullSort",
    "GroupSort",
    "Householder",
    "InvertibleDownsampling2d",
    "L1Linear",
    "L2Pool2d",
    "LinfConv1d",
    "LinfConv2d",
    "LinfDistance",
    "LinfLinear",
    "MaxMin",
    "Maxout",
    "MixedLinear",
    "OrthonormalConv1d",
    "OrthonormalConv2d",
    "OrthonormalConvTranspose1d",
    "OrthonormalConvTranspose2d",
    "OrthonormalLinear",
    "ParsevalLinear",
    "Residual",
    "Scale",
    "SortDistance",
    "SpectralConv1d",
    "SpectralConv2d",
    "SpectralConv3d",
    "SpectralConvTranspose1d",
    "SpectralConvTranspose2d",
    "SpectralConvTranspose3d",
    "SpectralLinear",
    "make_activation",
    "mlp",
]
