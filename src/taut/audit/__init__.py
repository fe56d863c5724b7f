"""Any `nn.Module` to a proven Lipschitz bound, layer by layer, or a refusal that names the layer."""

from taut.audit import spatial as _spatial  # noqa: F401  (importing it registers its rules)
from taut.audit.bound import audit, bound_lipschitz
from taut.audit.constants import Constants, Value
from taut.audit.rules import rule
from taut.audit.walk import Audit

__all__ = ["Audit", "Constants", "Value", "audit", "bound_lipschitz", "rule"]
