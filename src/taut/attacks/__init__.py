"""The empirical side: attacks on predictions, measured in float64, checked against certificates.

`ball` is where an attack may go, `objectives` what it lowers, `gradient` how it goes there,
`judge` what counts as a success. What no attack finds may still exist: only `taut.certify` proves.
"""

from taut.attacks.auto import autoattack
from taut.attacks.check import check_certificates
from taut.attacks.gradient import adversarial_batch, fgs, pgd
from taut.attacks.judge import judge
from taut.attacks.nearest import closest
from taut.attacks.result import AttackResult

__all__ = [
    "AttackResult",
    "adversarial_batch",
    "autoattack",
    "check_certificates",
    "closest",
    "fgs",
    "judge",
    "pgd",
]
