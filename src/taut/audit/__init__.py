"""Any `nn.Module` to a proven Lipschitz bound, layer by layer, or a refusal that names the layer."""

from taut.audit import spatial as _spatial  # noqa: F401  (importing it registers its rules)
from taut.audit.constants import Constants, Value
from taut.audit.graph import Audit, audit, bound_lipschitz
from taut.audit.rules import rule

__all__ = ["Audit", "Constants", "Value", "audit", "bound_lipschitz", "rule"]
