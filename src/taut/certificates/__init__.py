"""Inputs to certified radii: `certify` and what it returns; `bound_output` for a single output.

`frozen` makes a float64 copy of a network as evaluation runs it, `execution` runs it with a proven
error at every step, `radii` turns margins and errors into radii.
"""

from taut.certificates.inputs import certify
from taut.certificates.outputs import bound_output
from taut.certificates.result import Certificates

__all__ = ["Certificates", "bound_output", "certify"]
