"""Adversarial attacks: found in the model's arithmetic, measured in float64.

`check_certificates` compares them with certificates. What no attack finds may still exist: only
`taut.certify` proves.
"""

from taut.attacks.attack_problem import evaluate
from taut.attacks.attack_result import AttackResult
from taut.attacks.auto_attack import autoattack
from taut.attacks.certificate_violations import check_certificates
from taut.attacks.gradient_attacks import adversarial_batch, fgsm, pgd
from taut.attacks.minimal_attack import minimal_perturbation

__all__ = [
    "AttackResult",
    "adversarial_batch",
    "autoattack",
    "check_certificates",
    "evaluate",
    "fgsm",
    "minimal_perturbation",
    "pgd",
]
