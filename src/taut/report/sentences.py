"""Numbers and sentences about results, the same in the reports and in the terminal."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal

from taut.bounds import format_bound, format_number
from taut.certificates import Certificates
from taut.evaluation import RobustnessResult
from taut.norms import Norm
from taut.training import InputSpec
from taut.transport import WassersteinResult, name_critic

ATTACK_NAMES = {"fgsm": "FGSM", "pgd": "PGD", "autoattack": "AutoAttack"}
NORM_NAMES = {"l1": "L1", "l2": "L2", "linf": "L∞"}
UNITS = {
    "none": "in the data's own units",
    "standard": "in standard deviations of each feature",
    "robust": "in interquartile ranges of each feature",
}
_ARITHMETICS = {
    "real": "the network in exact arithmetic; the roundoff of the proof itself is subtracted",
    "float64": "the network as executed in float64, roundoff included",
    "float32": "the network as executed in float32, roundoff included",
}
_RULES = {
    "last-layer pairs": (
        "the margin of the predicted class over each other class, divided by the Lipschitz constant "
        "of that difference: the constant of all layers before the last, times the norm of the "
        "difference of the two rows of the last weight matrix"
    ),
    "vector map": (
        "the margin of the predicted class over the runner-up, divided by the Lipschitz constant of "
        "a difference of two outputs"
    ),
    "sign": "the magnitude of the output divided by the Lipschitz constant",
}
_MEANS = {
    "betting": "a betting martingale and Ville's inequality (Waudby-Smith and Ramdas 2024)",
    "bernstein": "the empirical Bernstein inequality (Maurer and Pontil 2009)",
    "hoeffding": "Hoeffding's inequality",
}


def round_percent(share: float, side: str = "") -> float:
    """A share in per cent, to one decimal: the nearest, or rounded outward from what it bounds.

    Args:
        share: from 0 to 1.
        side: "lower" or "upper" for a bound of that side; empty for a measured share.
    """
    modes = {"lower": ROUND_FLOOR, "upper": ROUND_CEILING, "": ROUND_HALF_UP}
    # The shortest decimal of a ratio such as 0.569 is the ratio; 1000 times its float may be below 569.
    return float(Decimal(repr(float(share))).scaleb(2).quantize(Decimal("0.1"), modes[side]))


def percent(share: float, side: str = "") -> str:
    """Formats a share in per cent; see `round_percent`.

    Example:
        >>> percent(0.9665), percent(0.05)
        ('96.7 %', '5.0 %')
        >>> percent(0.69147, "lower"), percent(0.69147, "upper")
        ('69.1 %', '69.2 %')
    """
    return f"{round_percent(share, side):.1f} %"


def round_accuracies(
    rows: Sequence[tuple[str, Sequence[float]]],
) -> list[tuple[str, list[float]]]:
    """The rows of `accuracy_table` in per cent, to one decimal.

    The first row holds the clean accuracy, which is measured. Below it, certified accuracy is a lower
    bound of the robust accuracy, and accuracy under attack an upper bound.
    """
    rounded = []
    for place, (name, (certified, *attacked)) in enumerate(rows):
        low, high = ("lower", "upper") if place else ("", "")
        shares = [round_percent(certified, low), *(round_percent(s, high) for s in attacked)]
        rounded.append((name, shares))
    return rounded


def as_sentence(note: str) -> str:
    """Formats a note with a capital letter and a full stop.

    Example:
        >>> as_sentence("columns were reordered")
        'Columns were reordered.'
    """
    return f"{note[:1].upper()}{note[1:].rstrip('.')}."


def shorten(text: str, most: int = 24) -> str:
    """Shortens a text to a number of characters, with an ellipsis at the end."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def radius_unit(spec: InputSpec) -> str:
    """The unit of a radius."""
    if spec.tolerance:
        fixed = " (columns without one are assumed fixed)" if 0 in spec.tolerance else ""
        return f"in multiples of the tolerances{fixed}"
    if spec.shift:
        return "in standard deviations of each column"
    if len(spec.shape) == 3:
        high = 1 if spec.high is None else spec.high
        return f"in pixel values between {spec.low or 0:g} and {high:g}"
    return "in units of the inputs"


def radius_label(norm: Norm) -> str:
    """The label of an axis of radii."""
    return f"radius, {NORM_NAMES[norm.name]}"


def accuracy_table(
    certificates: Certificates, radii: Sequence[float], attacked: RobustnessResult | None = None
) -> tuple[list[str], list[tuple[str, list[float]]]]:
    """Certified accuracy, and accuracy under each attack, at radius 0 and at `radii`.

    Returns:
        The header; and for each radius its name and the accuracies, as parts of 1.
    """
    attacks = [] if attacked is None else list(attacked.distances)
    header = [radius_label(certificates.norm), "certified"]
    header += [f"under {ATTACK_NAMES[name]}" for name in attacks]
    rows = []
    for radius in (0.0, *radii):
        shares = [float(certificates.certified_accuracy(radius))]
        if attacked is not None:
            shares += [attacked.accuracy(radius, name) for name in attacks]
        rows.append((f"{radius:.4g}" if radius else "0 (clean)", shares))
    return header, rows


def certified_headline(certificates: Certificates, radius: float) -> str:
    """Clean and certified accuracy in one sentence."""
    clean = percent(float(certificates.certified_accuracy()))
    certified = percent(float(certificates.certified_accuracy(radius)), "lower")
    norm = NORM_NAMES[certificates.norm.name]
    return f"{clean} clean accuracy, {certified} certified within {norm} radius {radius:.4g}"


def certified_guarantees(certificates: Certificates, spec: InputSpec) -> dict[str, str]:
    """The guarantees of certificates: what is proven, how, in which arithmetic, and what is not."""
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


def shows_difference(result: WassersteinResult) -> bool:
    """Whether the lower bound or the permutation test shows that the two populations differ."""
    tested = result.p_value is not None and result.p_value <= 1 - result.confidence
    return tested or result.lower.value > 0


def distance_headline(result: WassersteinResult, names: tuple[str, str]) -> str:
    """The result in one sentence."""
    pair = " and ".join(names)
    sure = "proven" if result.confidence == 1 else f"at {100 * result.confidence:.4g} % confidence"
    low = format_bound(result.lower.value, "lower", 3)
    high = format_bound(result.upper.value, "upper", 3)
    p = None if result.p_value is None else f"p = {result.p_value:.3g}"
    if not result.upper_is_useful:
        if not result.finite:
            sure = f"at {100 * result.lower.confidence:.4g} % confidence"
        statement = f"{pair} are at least {low} apart, {sure}"
        if float(low) == 0:
            verb = "differ" if shows_difference(result) else "are not shown to differ"
            statement = f"{pair} {verb}"
        tested = "" if p is None else f" (permutation test: {p})"
        why = f"no useful upper bound in {result.dim} dimensions"
        if result.unseen:
            why = (
                f"no upper bound, because of unseen values in {', '.join(map(repr, result.unseen))}"
            )
        return f"{statement}{tested}; {why}"
    if result.assumption:
        sure = f"{sure} {result.assumption}"
    if float(low) > 0:
        tested = "" if p is None else f" (permutation test: {p})"
        return f"{pair} are between {low} and {high} apart, {sure}{tested}"
    apart, level = f"{pair} are at most {high} apart, {sure}", 1 - result.confidence
    if result.p_value is not None and result.p_value <= level:
        return (
            f"{apart}; a permutation test shows at the {100 * level:.4g} % level that they differ "
            f"({p}), although the lower bound on the distance is 0"
        )
    shown = "the bounds" if p is None else f"the bounds and a permutation test ({p})"
    return f"{apart}; {shown} do not show that they differ"


def distance_rows(result: WassersteinResult) -> list[list[str]]:
    """Estimate and bounds: names, values and methods."""
    rows = [
        ["estimate", format_number(result.estimate.value), result.estimate.method],
        ["at least", format_bound(result.lower.value, "lower"), result.lower.method],
    ]
    if result.upper_is_useful:
        rows += [
            ["at most", format_bound(result.upper.value, "upper"), result.upper.method],
            ["gap", format_bound(result.gap, "upper"), "difference of the two bounds"],
        ]
    if result.bootstrap is not None:
        low, high = result.bootstrap
        about = "bootstrap interval of the estimate; not a proven bound"
        rows.append(["bootstrap", f"{format_number(low)} to {format_number(high)}", about])
    if result.p_value is not None:
        test = "permutation test of the hypothesis that both populations are the same"
        rows.append(["p-value", f"{result.p_value:.3g}", test])
    constant = format_bound(result.lipschitz.value, "upper", 7)
    about = f"Lipschitz constant of the {name_critic(result.kind)}, proven"
    rows.append(["constant", f"≤\N{NO-BREAK SPACE}{constant}", about])
    return rows


def distance_assumption(result: WassersteinResult) -> str:
    """The assumptions of the bounds about the rows, in one sentence."""
    if result.finite:
        return "The bounds hold for these rows, and say nothing about the populations behind them."
    return "Assumption: the rows of each dataset are i.i.d. samples of one population."


def distance_guarantees(result: WassersteinResult, method: str = "") -> dict[str, str]:
    """The guarantees of a result: what is proven, by which theorem and assumptions, and what is not.

    Args:
        result: the result.
        method: confidence bound of the means: "betting", "bernstein" or "hoeffding".

    Returns:
        A title and a sentence or two for each guarantee.
    """
    constant = format_bound(result.lipschitz.value, "upper", 7)
    low, high = format_bound(result.lower.value, "lower"), format_bound(result.upper.value, "upper")
    guarantees = {
        "The distance": (
            "Wasserstein-1: the smallest average distance that mass has to travel to turn one "
            f"distribution into the other, in the Euclidean norm, {UNITS[result.scaling.method]}."
        )
    }
    if result.finite:
        guarantees["Lower bound"] = (
            f"At least {low}, proven: the mean scores of the two sets differ by that much, for a "
            f"critic whose Lipschitz constant is proven to be at most {constant} (Kantorovich and "
            "Rubinstein 1958)."
        )
        if result.dim == 1:
            guarantees["Lower bound"] = (
                f"At least {low}, proven: on a line the distance is the area between the two "
                "distribution functions, computed here with its rounding error."
            )
        guarantees["Upper bound"] = (
            f"At most {high}, proven: this is the cost of a transport plan from one set to the "
            f"other ({result.upper.method})."
        )
        guarantees["Not claimed"] = (
            "Anything about the populations that the two sets may have been drawn from: even two "
            "samples of the same population differ."
        )
    else:
        lower_sure, upper_sure = (
            f"{100 * bound.confidence:.5g} %" for bound in (result.lower, result.upper)
        )
        by = f" The means are bounded by {_MEANS[method]}." if method in _MEANS else ""
        guarantees["Lower bound"] = (
            f"At least {low}, with probability {lower_sure}. The means of a 1-Lipschitz function "
            "over two populations never differ by more than the distance between the populations "
            "(Kantorovich and Rubinstein 1958). The Lipschitz constant of this critic is proven from "
            f"its weights to be at most {constant}, and the critic was trained without the held-out "
            f"rows.{by}"
        )
        guarantees["Upper bound"] = (
            f"At most {high}, with probability {upper_sure}. On average, two samples are at least as "
            "far apart as their populations. The distance between the samples is at most the cost of "
            "any transport plan between them, and a concentration inequality limits how far it is "
            f"below its average ({result.upper.method})."
        )
        if result.dim > 1:
            guarantees["Upper bound"] += (
                " In high dimensions this bound is loose, because even two samples of the same "
                "population are far apart."
            )
        if result.diameter is None:
            guarantees["Assumption of the upper bound"] = (
                "Neither population is wider than the data: no two of its rows are farther apart than "
                "twice the largest distance of an observed row from the mean. To replace this "
                "assumption, state a known diameter (--diameter). The lower bound does not need it."
            )
        guarantees["Assumptions"] = (
            "The rows of each dataset are i.i.d. samples of one population. If rows are duplicated, or "
            "depend on each other as in a time series, the bounds are too narrow."
        )
    if result.unseen:
        guarantees.pop("Assumption of the upper bound", None)
        guarantees["Upper bound"] = (
            f"None: {', '.join(map(repr, result.unseen))} has categories or missing values that were not "
            "there when the encoding was fitted. They are mapped to points that are closer than the "
            "values themselves, so only lower bounds hold."
        )
    guarantees["The estimate"] = (
        f"{format_number(result.estimate.value)} ({result.estimate.method}) may be above or below the true "
        "distance."
    )
    return guarantees
