"""Attacks checked against certificates: none may succeed inside a certified radius."""

import math

from torch import nn

from taut.attacks.attack_result import AttackResult
from taut.certificates import Certificates, certify
from taut.errors import ArgumentError, ViolatedCertificateError
from taut.linalg import gamma


def check_certificates(
    found: AttackResult, certificates: Certificates, model: nn.Module | None = None
) -> None:
    """Raises if an attack changed a prediction strictly inside its certified radius.

    Distances are rounded up by all that their measurement may have lost, so that what is reported
    is a contradiction and no rounding. Certificates for real arithmetic say nothing of the last
    digits of an execution in float32: with `model` given, an example counts only if its own
    certificate proves the other prediction.

    Args:
        found: the attack.
        certificates: of the same inputs, in the same norm.
        model: the network, to confirm what is found in the arithmetic of the certificates.

    Raises:
        ViolatedCertificateError: the theorem, its code or this machine is wrong.

    Example:
        >>> model, x = torch.nn.Identity(), torch.tensor([[0.6, 0.4], [0.9, 0.1]])
        >>> proven = taut.certify(model, x, "l2")
        >>> labels = proven.prediction
        >>> check_certificates(taut.attacks.pgd(model, x, labels, radius=0.5, norm="l2"), proven)
    """
    if len(found) != len(certificates) or found.norm != certificates.norm:
        rule = "must be of the same inputs in the same norm"
        got = f"{len(certificates)} in {certificates.norm} for {len(found)} in {found.norm}"
        raise ArgumentError("check_certificates", "certificates", rule, got)
    home = found.distance.device
    radius, prediction = certificates.radius.to(home), certificates.prediction.to(home)
    size = math.prod(found.examples.shape[1:])
    distance = found.distance * (1 + 4 * gamma(size + 4))
    violated = (found.prediction != prediction) & (distance < radius)
    rows = violated.nonzero()[:, 0]
    if len(rows) and model is not None:
        # An example counts if a certificate of its own proves the other prediction.
        arithmetic = certificates.arithmetic
        own = certify(model, found.examples[rows], certificates.norm, arithmetic=arithmetic)
        confirmed = (own.radius > 0) & (own.prediction != prediction[rows].to(own.radius.device))
        rows = rows[confirmed.to(home)]
    if not len(rows):
        return
    row = int(rows[(radius - distance)[rows].argmax()])
    raise ViolatedCertificateError(
        "check_certificates",
        rule=f"{found.attack} changed {len(rows)} of {len(found)} certified predictions; input {row} "
        f"went from class {int(prediction[row])} to {int(found.prediction[row])} at {found.norm} "
        f"distance {float(found.distance[row])!r}, certified radius {float(radius[row])!r} in "
        f"{certificates.arithmetic} arithmetic",
        remedy="This is a bug in taut: please report it with the network and the input."
        + ("" if model is not None else " Pass model=... to rule out rounding in the execution."),
    )
