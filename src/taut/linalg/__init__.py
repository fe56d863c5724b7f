"""Pure tensor mathematics; each docstring states the theorem it implements.

What is named `project_*` is an exact map, `bound_*` is proven, `estimate_*` is neither.
"""

from taut.linalg.autocorrelation import TapPairs, bound_autocorrelation, rescale_channels
from taut.linalg.ball_projections import (
    project_l1_ball,
    project_l1_ball_by_sorting,
    project_l2_ball,
    project_linf_ball,
)
from taut.linalg.bjorck_iteration import SCALINGS, apply_bjorck, bjorck, bound_by_scaling
from taut.linalg.block_kernels import block_convolution, retract_stack
from taut.linalg.convolution_divisor import bound_kernel_norm, norm_on_grid
from taut.linalg.convolution_norm import bound_convolution
from taut.linalg.matrix_norm import bound_operator_norm, bound_spectral_norm, power_iteration
from taut.linalg.orthonormalisations import (
    ORTHONORMALISATIONS,
    cayley,
    cholesky_orthonormal,
    exponential,
    qr_orthonormal,
)
from taut.linalg.padding_norm import bound_padding
from taut.linalg.pooling_norm import bound_adaptive_pooling, bound_pooling
from taut.linalg.rounding import gamma, round_down, round_up, unit_roundoff
from taut.linalg.stiefel import (
    follow_tangent,
    polar,
    project_tangent,
    retract,
    retract_once,
    rounding_margin,
)
from taut.linalg.symmetric import estimate_extreme_eigenvalues, even_vector, gram, symmetric_product

__all__ = [
    "ORTHONORMALISATIONS",
    "SCALINGS",
    "TapPairs",
    "apply_bjorck",
    "bjorck",
    "block_convolution",
    "bound_adaptive_pooling",
    "bound_autocorrelation",
    "bound_by_scaling",
    "bound_convolution",
    "bound_kernel_norm",
    "bound_operator_norm",
    "bound_padding",
    "bound_pooling",
    "bound_spectral_norm",
    "cayley",
    "cholesky_orthonormal",
    "estimate_extreme_eigenvalues",
    "even_vector",
    "exponential",
    "follow_tangent",
    "gamma",
    "gram",
    "norm_on_grid",
    "polar",
    "power_iteration",
    "project_l1_ball",
    "project_l1_ball_by_sorting",
    "project_l2_ball",
    "project_linf_ball",
    "project_tangent",
    "qr_orthonormal",
    "rescale_channels",
    "retract",
    "retract_once",
    "retract_stack",
    "round_down",
    "round_up",
    "rounding_margin",
    "symmetric_product",
    "unit_roundoff",
]
