"""The result of `taut.wasserstein` in sentences, the same in the report and in the terminal."""

from taut.report.numbers import format_bound
from taut.transport import WassersteinResult

__all__ = ["UNITS", "distance_guarantees", "distance_headline"]

UNITS = {
    "none": "in the data's own units",
    "standard": "in standard deviations of each feature",
    "robust": "in interquartile ranges of each feature",
}
_MEANS = {
    "betting": "a betting martingale and Ville's inequality (Waudby-Smith and Ramdas 2024)",
    "bernstein": "the empirical Bernstein inequality (Maurer and Pontil 2009)",
    "hoeffding": "Hoeffding's inequality",
}


def distance_headline(result: WassersteinResult, names: tuple[str, str]) -> str:
    """The result in one sentence."""
    pair = " and ".join(names)
    sure = "proven" if result.confidence == 1 else f"at {100 * result.confidence:.4g} % confidence"
    low = format_bound(result.lower.value, "lower", 3)
    high = format_bound(result.upper.value, "upper", 3)
    if float(low) <= 0:
        return f"{pair} are at most {high} apart, {sure}; the bounds do not show that they differ"
    return f"{pair} are between {low} and {high} apart, {sure}"


def distance_guarantees(result: WassersteinResult, method: str = "") -> dict[str, str]:
    """What is guaranteed, by which theorem and under which assumptions, and what is not.

    Args:
        result: the result.
        method: confidence bound of the means: "betting", "bernstein" or "hoeffding".

    Returns:
        A title and a sentence or two for each guarantee.
    """
    constant = format_bound(result.lipschitz.value, "upper", 7)
    low, high = format_bound(result.lower.value, "lower"), format_bound(result.upper.value, "upper")
    told = {
        "The distance": (
            "Wasserstein-1: the smallest average distance that mass has to travel to turn one "
            f"distribution into the other, in the Euclidean norm, {UNITS[result.scaling.method]}."
        )
    }
    if result.finite:
        told["Lower bound"] = (
            f"At least {low}, proven: the mean scores of the two sets differ by that much, for a "
            f"critic whose Lipschitz constant is proven to be at most {constant} (Kantorovich and "
            "Rubinstein 1958)."
        )
        told["Upper bound"] = (
            f"At most {high}, proven: this is the cost of a transport plan from one set to the "
            f"other ({result.upper.method})."
        )
        told["Not claimed"] = (
            "Anything about the populations that the two sets may have been drawn from: two samples "
            "of one population differ too."
        )
    else:
        lower_sure, upper_sure = (
            f"{100 * bound.confidence:.5g} %" for bound in (result.lower, result.upper)
        )
        by = f" The means are bounded by {_MEANS[method]}." if method in _MEANS else ""
        told["Lower bound"] = (
            f"At least {low}, with probability {lower_sure}. The means of a 1-Lipschitz function "
            "over two populations never differ by more than the distance of the populations "
            "(Kantorovich and Rubinstein 1958). The constant of this critic is proven from its "
            f"weights to be at most {constant}, and it was fixed before the held-out rows were "
            f"looked at.{by}"
        )
        told["Upper bound"] = (
            f"At most {high}, with probability {upper_sure}. The expected cost of exact transport "
            "between independent batches is at least the distance of the populations; McDiarmid's "
            f"inequality bounds the deviation ({result.upper.method}). In high dimension this bound "
            "is loose: batches of one and the same population are far apart there."
        )
        told["Assumptions"] = (
            "The rows of each data set are i.i.d. samples of one population. Duplicate rows and "
            "rows that depend on each other, as in a time series, make the bounds too narrow."
        )
        if result.diameter is None:
            told["Assumption of the upper bound"] = (
                "The support of each population is no wider than the data. State a diameter that "
                "you know (--diameter) to remove this assumption. The lower bound does not need it."
            )
    told["The estimate"] = (
        f"{result.estimate.value:.4g} ({result.estimate.method}) may lie on either side of the "
        "true distance."
    )
    return told
