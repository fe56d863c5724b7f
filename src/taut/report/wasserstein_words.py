"""What a distance between data sets means, in sentences: the same on the page and in the terminal."""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from taut.wasserstein import WassersteinResult

__all__ = ["UNITS", "headline", "promises", "rounded"]

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


def rounded(value: float, side: str, digits: int = 4) -> str:
    """A bound in few digits, never on the wrong side of itself.

    Example:
        >>> rounded(0.123456, "lower"), rounded(0.123456, "upper"), rounded(0.0, "lower")
        ('0.1234', '0.1235', '0')
    """
    towards = ROUND_CEILING if side == "upper" else ROUND_FLOOR
    return f"{float(Context(prec=digits, rounding=towards).create_decimal(value)):.{digits}g}"


def headline(result: WassersteinResult, names: tuple[str, str]) -> str:
    """The answer in one sentence."""
    pair = " and ".join(names)
    sure = "proven" if result.confidence == 1 else f"at {100 * result.confidence:.4g} % confidence"
    low, high = rounded(result.lower.value, "lower", 3), rounded(result.upper.value, "upper", 3)
    if float(low) <= 0:
        return f"{pair} are at most {high} apart, {sure}; nothing proves that they differ"
    return f"{pair} are between {low} and {high} apart, {sure}"


def promises(result: WassersteinResult, method: str = "") -> dict[str, str]:
    """What is guaranteed, by which theorem and under which assumptions, and what is not.

    Args:
        result: the answer.
        method: how means were bounded: "betting", "bernstein" or "hoeffding".

    Returns:
        A title and a sentence or two for each.
    """
    constant = rounded(result.lipschitz.value, "upper", 7)
    low, high = rounded(result.lower.value, "lower"), rounded(result.upper.value, "upper")
    unit = UNITS[result.scaling.method]
    told = {
        "The distance": (
            "Wasserstein-1: the least mean way that mass must travel to turn one into the other, "
            f"in the Euclidean norm, {unit}."
        )
    }
    if result.population:
        lower_sure, upper_sure = (
            f"{100 * bound.confidence:.5g} %" for bound in (result.lower, result.upper)
        )
        by = _MEANS.get(method)
        means = f" Their means are bounded by {by}." if by else ""
        told["Lower bound"] = (
            f"At least {low}, with probability {lower_sure}. A function of slope at most 1 never "
            "sets two populations further apart in the mean than their distance (Kantorovich and "
            f"Rubinstein 1958). The constant of this critic is proven from its weights to be at "
            f"most {constant}, and it was fixed before the rows that judge it were "
            f"looked at.{means}"
        )
        told["Upper bound"] = (
            f"At most {high}, with probability {upper_sure}. Exact transport between independent "
            "batches costs in the mean at least the distance of the populations; McDiarmid's "
            f"inequality bounds the luck of the draw ({result.upper.method}). In high dimension "
            "this side is loose: batches of one and the same population are far apart there."
        )
        told["Assumed"] = (
            "The rows of each side are independent draws of one population. Copies, and rows that "
            "follow each other in time, make the bounds too sure of themselves."
        )
        if "assuming" in result.upper.method:
            told["Assumed for the upper bound"] = (
                "No row that was not drawn lies further out than those that were: the width of the "
                "support was taken from the data. State a width that you know (--diameter) and "
                "this assumption is gone. The lower bound needs none."
            )
    else:
        told["Lower bound"] = (
            f"At least {low}, proven: a critic whose constant is proven to be at most {constant} "
            "sets the two sets that far apart in the mean (Kantorovich and Rubinstein 1958)."
        )
        told["Upper bound"] = (
            f"At most {high}, proven: a plan that carries one set onto the other costs no more "
            f"({result.upper.method})."
        )
        told["Not claimed"] = (
            "Anything about the populations that the two sets may have been drawn from: sets of "
            "one population differ too."
        )
    told["The estimate"] = (
        f"{result.estimate.value:.4g} ({result.estimate.method}) is on no proven side of the truth."
    )
    return told
