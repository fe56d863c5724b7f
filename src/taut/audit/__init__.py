"""Any `nn.Module` to a proven Lipschitz bound, layer by layer, or a refusal that names the layer."""

from taut.audit.container_tracing import find_input_shape
from taut.audit.eval_mode_copy import Prepared, copy_for_evaluation, prepare, unwrap
from taut.audit.lipschitz_bound import audit, audit_program, bound_lipschitz, bound_of, find_program
from taut.audit.lipschitz_interpreter import Audit, LayerTrace
from taut.audit.program import Program
from taut.audit.rule_interpreter import RuleInterpreter

__all__ = [
    "Audit",
    "LayerTrace",
    "Prepared",
    "Program",
    "RuleInterpreter",
    "audit",
    "audit_program",
    "bound_lipschitz",
    "bound_of",
    "copy_for_evaluation",
    "find_input_shape",
    "find_program",
    "prepare",
    "unwrap",
]
