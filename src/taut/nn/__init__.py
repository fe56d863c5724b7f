"""Torch modules that are 1-Lipschitz by construction, and stay so in training."""

from taut.nn import init, utils
from taut.nn.ball_layers import L1Linear, LinfConv1d, LinfConv2d, LinfLinear, MixedLinear
from taut.nn.builders import make_activation, mlp, separable_conv2d
from taut.nn.channel_activations import FullSort, GroupSort, Householder, MaxMin, Maxout, PairLength
from taut.nn.clip import Clip
from taut.nn.cone_critic import ConeCritic
from taut.nn.constrained import ConstrainedLayer, ConstrainedLinear
from taut.nn.conv import ConstrainedConv
from taut.nn.conv_aol import (
    AOLConv1d,
    AOLConv2d,
    AOLConv3d,
    AOLConvTranspose1d,
    AOLConvTranspose2d,
    AOLConvTranspose3d,
)
from taut.nn.conv_convex_potential import CPLResidual2d, PotentialStep2d, SLLResidual2d
from taut.nn.conv_orthonormal import (
    OrthonormalConv1d,
    OrthonormalConv2d,
    OrthonormalConv3d,
    OrthonormalConvTranspose1d,
    OrthonormalConvTranspose2d,
    OrthonormalConvTranspose3d,
)
from taut.nn.conv_spectral import (
    SpectralConv1d,
    SpectralConv2d,
    SpectralConv3d,
    SpectralConvTranspose1d,
    SpectralConvTranspose2d,
    SpectralConvTranspose3d,
)
from taut.nn.convex_potential import CPLResidual, PotentialStep, SLLResidual
from taut.nn.distance import LinfDistance, SortDistance
from taut.nn.distance_patches import LinfDistance2d
from taut.nn.downsampling import (
    AdaptiveL2Pool2d,
    InvertibleDownsampling2d,
    InvertibleUpsampling2d,
    L2Pool2d,
    ScaledAdaptiveAvgPool2d,
    ScaledAvgPool2d,
)
from taut.nn.elementwise_activations import Abs, LPReLU, SoftHuber
from taut.nn.lipnext import ChannelShift2d, HalfAbs, shift_rotate
from taut.nn.monotone import Monotone
from taut.nn.normalisation import Centering, LayerCentering, LipschitzBatchNorm
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.row_rescaling import AOLLinear, UnitNormLinear
from taut.nn.sandwich import SandwichLinear, SandwichStep
from taut.nn.scale import Scale
from taut.nn.skip_connection import Residual
from taut.nn.spectral import ParsevalLinear, SpectralLinear
from taut.nn.symmetric_padding import SymmetricPad1d, SymmetricPad2d, SymmetricPad3d

__all__ = [
    "AOLConv1d",
    "AOLConv2d",
    "AOLConv3d",
    "AOLConvTranspose1d",
    "AOLConvTranspose2d",
    "AOLConvTranspose3d",
    "AOLLinear",
    "Abs",
    "AdaptiveL2Pool2d",
    "CPLResidual",
    "CPLResidual2d",
    "Centering",
    "ChannelShift2d",
    "Clip",
    "ConeCritic",
    "ConstrainedConv",
    "ConstrainedLayer",
    "ConstrainedLinear",
    "FullSort",
    "GroupSort",
    "HalfAbs",
    "Householder",
    "InvertibleDownsampling2d",
    "InvertibleUpsampling2d",
    "L1Linear",
    "L2Pool2d",
    "LPReLU",
    "LayerCentering",
    "LinfConv1d",
    "LinfConv2d",
    "LinfDistance",
    "LinfDistance2d",
    "LinfLinear",
    "LipschitzBatchNorm",
    "MaxMin",
    "Maxout",
    "MixedLinear",
    "Monotone",
    "OrthonormalConv1d",
    "OrthonormalConv2d",
    "OrthonormalConv3d",
    "OrthonormalConvTranspose1d",
    "OrthonormalConvTranspose2d",
    "OrthonormalConvTranspose3d",
    "OrthonormalLinear",
    "PairLength",
    "ParsevalLinear",
    "PotentialStep",
    "PotentialStep2d",
    "Residual",
    "SLLResidual",
    "SLLResidual2d",
    "SandwichLinear",
    "SandwichStep",
    "Scale",
    "ScaledAdaptiveAvgPool2d",
    "ScaledAvgPool2d",
    "SoftHuber",
    "SortDistance",
    "SpectralConv1d",
    "SpectralConv2d",
    "SpectralConv3d",
    "SpectralConvTranspose1d",
    "SpectralConvTranspose2d",
    "SpectralConvTranspose3d",
    "SpectralLinear",
    "SymmetricPad1d",
    "SymmetricPad2d",
    "SymmetricPad3d",
    "UnitNormLinear",
    "init",
    "make_activation",
    "mlp",
    "separable_conv2d",
    "shift_rotate",
    "utils",
]
