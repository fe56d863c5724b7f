"""Inputs to certified radii and boxes to boxes, every rounding included.

`execution` runs a network in float64 with a proven error at every operation, `radii` turns margins
and errors into radii, `intervals` propagates boxes, `interval_radii` finds the largest of them.
"""

from taut.certificates.arithmetic import Arithmetic
from taut.certificates.certification import certify, direct_executor
from taut.certificates.class_exclusion import certify_exclusions
from taut.certificates.feature_tolerances import Tolerance, radii_after_rounding, scale_network
from taut.certificates.inputs import check_batch, check_labels
from taut.certificates.interval_propagation import bound_outputs
from taut.certificates.order_gap import bound_order_gap
from taut.certificates.output_bounds import BoundedEvaluation, bound_output
from taut.certificates.ray_tracing import RayTrace, trace_rays
from taut.certificates.result import Certificates

__all__ = [
    "Arithmetic",
    "BoundedEvaluation",
    "Certificates",
    "RayTrace",
    "Tolerance",
    "bound_order_gap",
    "bound_output",
    "bound_outputs",
    "certify",
    "certify_exclusions",
    "check_batch",
    "check_labels",
    "direct_executor",
    "radii_after_rounding",
    "scale_network",
    "trace_rays",
]
