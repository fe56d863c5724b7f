"""What is known of a classifier in sentences, the same in the report and in the terminal."""

from taut.certificates import Certificates
from taut.norms import Norm
from taut.report.numbers import format_bound, percent
from taut.training import InputSpec

__all__ = [
    "ATTACK_NAMES",
    "NORM_NAMES",
    "certified_guarantees",
    "certified_headline",
    "radius_label",
    "radius_unit",
]

ATTACK_NAMES = {"fgsm": "FGSM", "pgd": "PGD", "autoattack": "AutoAttack"}
NORM_NAMES = {"l1": "L1", "l2": "L2", "linf": "L∞"}
_ARITHMETICS = {
    "real": "the network in exact arithmetic; the roundoff of the proof itself is subtracted",
    "float64": "the network as executed in float64, roundoff included",
    "float32": "the network as executed in float32, roundoff included",
}
_RULES = {
    "last-layer pairs": (
        "the margin of the predicted class over each other class, divided by the Lipschitz constant "
        "of that difference: the constant of the layers before the last times the norm of the "
        "difference of two rows of the last"
    ),
    "vector map": (
        "the margin of the predicted class over the next, divided by the Lipschitz constant of a "
        "difference of two outputs"
    ),
    "sign": "the magnitude of the output divided by the Lipschitz constant",
}


def radius_unit(spec: InputSpec) -> str:
    """The unit of a radius."""
    if spec.shift:
        return "in standard deviations of each column"
    if len(spec.shape) == 3:
        high = 1 if spec.high is None else spec.high
        return f"in pixel values between {spec.low or 0:g} and {high:g}"
    return "in units of the inputs"


def radius_label(norm: Norm) -> str:
    """The label of an axis of radii."""
    return f"radius, {NORM_NAMES[norm.name]}"


def certified_headline(certificates: Certificates, radius: float) -> str:
    """Clean and certified accuracy in one sentence."""
    clean = float(certificates.certified_accuracy())
    held = float(certificates.certified_accuracy(radius))
    return (
        f"{percent(clean)} clean accuracy, {percent(held)} certified within "
        f"{NORM_NAMES[certificates.norm.name]} radius {radius:.4g}"
    )


def certified_guarantees(certificates: Certificates, spec: InputSpec) -> dict[str, str]:
    """What is guaranteed, by which argument, in which arithmetic, and what is not."""
    constant = format_bound(certificates.lipschitz.value, "upper", 7)
    norm = NORM_NAMES[certificates.norm.name]
    return {
        "Proven": (
            "No perturbation of an input that is smaller than its certified radius changes the "
            f"prediction, whatever the attacker knows. Radii are in the {norm} norm, "
            f"{radius_unit(spec)}."
        ),
        "Method": (
            f"The radius is {_RULES.get(certificates.method, certificates.method)}. Constants are "
            "proven layer by layer from the stored weights, not estimated: that of the whole "
            f"network is at most {constant} in {norm}."
        ),
        "Arithmetic": f"The certificate covers {_ARITHMETICS[certificates.arithmetic]}.",
        "Not proven": (
            "That a prediction is correct: accuracy is measured on these test examples. Accuracy "
            "under attack is no proof either; the true robust accuracy lies between the two curves."
        ),
    }
