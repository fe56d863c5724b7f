"""The table of verdicts: a row for each claim of the paper."""

from collections import Counter
from collections.abc import Iterable

from taut_lab.framework.experiment import Experiment
from taut_lab.framework.verdict import Verdict

__all__ = ["VERDICT_COLUMNS", "verdict_cells", "verdict_summary"]

VERDICT_COLUMNS = ("In the paper", "Claim", "Verdict", "Why", "Seeds", "Budget")


def verdict_cells(experiment: Experiment, verdict: Verdict) -> tuple[str, str, str, str, str]:
    """Claim, verdict, reason, number of seeds and budget."""
    return experiment.claim, verdict.word, verdict.reason, verdict.seeds, verdict.budget


def verdict_summary(verdicts: Iterable[Verdict]) -> str:
    """How many claims have each verdict, and the rule.

    Example:
        >>> verdict_summary([Verdict((), "")])[:32]
        'Claims of the paper: 1 undecided'
    """
    counts = Counter(verdict.word for verdict in verdicts)
    words = ("confirmed", "refuted", "undecided")
    told = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
    return (
        f"Claims of the paper: {told}. A claim is a list of inequalities between recorded numbers: it "
        "is confirmed if all of them hold, refuted if one fails, and undecided where cells are missing, "
        "a difference is within the noise, or a size would need the paper's budget."
    )
