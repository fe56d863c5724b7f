"""Inputs to certified radii and boxes to boxes, every rounding included.

`rounded_execution` runs a network in float64 with a proven error at every operation, `radii` turns
margins and errors into radii, `interval_propagation` propagates boxes, and
`interval_propagation_radii` finds the largest radius that they prove.
"""

from taut.certificates.certification import certify
from taut.certificates.certification_result import Certificates
from taut.certificates.conformal_exclusion import certify_exclusions
from taut.certificates.float32_execution import direct_executor
from taut.certificates.input_checks import check_batch, check_labels
from taut.certificates.input_tolerances import Tolerance, scale_network
from taut.certificates.interval_propagation import bound_outputs
from taut.certificates.monotone_order_gap import bound_order_gap
from taut.certificates.output_bounds import BoundedEvaluation, bound_output
from taut.certificates.radii import radii_after_rounding
from taut.certificates.sphere_tracing import RayTrace, trace_rays
from taut.names import Arithmetic

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
