"""What is known of a classifier, in sentences: the same on the page and in the terminal."""

from taut.certificates import Certificates
from taut.norms import Norm
from taut.report.wasserstein_words import rounded
from taut.training import InputSpec

__all__ = ["ATTACK_NAMES", "NORMS", "guarantees", "headline", "percent", "radius_label", "unit"]

ATTACK_NAMES = {"fgs": "FGS", "pgd": "PGD", "autoattack": "AutoAttack"}
NORMS = {"l1": "L1", "l2": "L2", "linf": "L∞"}
_ARITHMETICS = {
    "real": "the network in exact arithmetic; what float64 rounds off in the proof is subtracted",
    "float64": "the network run in float64, every rounding included",
    "float32": "the network run in float32, every rounding included",
}
_RULES = {
    "last-layer pairs": (
        "the lead of the predicted class over each other class, divided by the constant of that "
        "difference: that of the layers before the last times the norm of the difference of two "
        "rows of the last"
    ),
    "vector map": (
        "the lead of the predicted class over the next, divided by the constant of a difference "
        "of two outputs"
    ),
    "sign": "the magnitude of the output divided by the constant",
}


def percent(share: float) -> str:
    """A share as people read it.

    Example:
        >>> percent(0.9665)
        '96.7 %'
    """
    return f"{100 * share:.1f} %"


def unit(spec: InputSpec) -> str:
    """What a radius is counted in."""
    if spec.shift:
        return "in standard deviations of each column"
    if len(spec.shape) == 3:
        return (
            f"counted in pixels from {spec.low or 0:g} to {1 if spec.high is None else spec.high:g}"
        )
    return "in units of the inputs"


def radius_label(norm: Norm) -> str:
    """The name of the axis of radii."""
    return f"radius, {NORMS[norm.name]}"


def headline(certificates: Certificates, radius: float) -> str:
    """The answer in one sentence."""
    clean = float(certificates.certified_accuracy())
    held = float(certificates.certified_accuracy(radius))
    return (
        f"{percent(clean)} right, {percent(held)} proven within {NORMS[certificates.norm.name]} "
        f"{radius:.4g}"
    )


def guarantees(certificates: Certificates, spec: InputSpec) -> dict[str, str]:
    """What is guaranteed, by which argument, in which arithmetic, and what is not."""
    constant = rounded(certificates.lipschitz.value, "upper", 7)
    norm = NORMS[certificates.norm.name]
    return {
        "Proven": (
            "No change of an input that is shorter than its radius changes the prediction, "
            f"whoever makes it and whatever they know. Radii are in the {norm} norm, {unit(spec)}."
        ),
        "By": (
            f"the radius is {_RULES.get(certificates.method, certificates.method)}. Constants are "
            "proven layer by layer from the stored weights, not estimated: the whole network has "
            f"at most {constant} in {norm}."
        ),
        "Arithmetic": f"{_ARITHMETICS[certificates.arithmetic]}.",
        "Not proven": (
            "that a prediction is right: that is counted on test examples, and the shares here are "
            "of these examples alone. What attacks leave standing is no proof either; the truth "
            "lies between the two curves."
        ),
    }
