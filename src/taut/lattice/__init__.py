"""The paper's constructions as working networks: maxima, equivalent activations, interpolation.

Every function follows a constructive proof, and returns a plain `torch.nn.Sequential` of
`torch.nn.Linear` layers and the activations of `taut.nn`.
"""

from taut.lattice.activation_equivalences import (
    abs_from_max_min,
    concatenated_relu_from_max_min,
    full_sort_from_max_min,
    leaky_relu_from_max_min,
    max_min_from_abs,
    max_min_from_full_sort,
    maxout_from_group_sort,
    relu_from_max_min,
)
from taut.lattice.equal_singular_values import unit_singular_values
from taut.lattice.interpolation import interpolate
from taut.lattice.pointwise_maximum import maximum, maximum_of, minimum, minimum_of

__all__ = [
    "abs_from_max_min",
    "concatenated_relu_from_max_min",
    "full_sort_from_max_min",
    "interpolate",
    "leaky_relu_from_max_min",
    "max_min_from_abs",
    "max_min_from_full_sort",
    "maximum",
    "maximum_of",
    "maxout_from_group_sort",
    "minimum",
    "minimum_of",
    "relu_from_max_min",
    "unit_singular_values",
]
