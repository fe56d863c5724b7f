"""Verdicts: what follows from inequalities, at which budget."""

import pytest

from taut_lab.framework.verdict import Check, Verdict, budget


@pytest.mark.parametrize(
    ("larger", "smaller", "expected"),
    [
        ([0.9], [0.5], "holds"),
        ([0.5], [0.9], "fails"),
        ([], [0.5], "missing"),
        ([0.5], [0.5], "fails"),
        # Means that differ by 0.1, with standard errors of 0.1 each.
        ([0.5, 0.7], [0.4, 0.6], "too close"),
        ([0.50, 0.51], [0.40, 0.41], "holds"),
        ([0.5, 0.5], 0.4, "holds"),
    ],
)
def test_a_case_is_decided_by_means_beyond_their_noise(larger, smaller, expected):
    assert Check("a", {"": (larger, smaller)}).case("") == expected


def test_the_difference_and_the_noise_are_part_of_the_rule():
    assert Check("a", {"": ([0.5], [0.6])}, by=-0.2).case("") == "holds"
    assert Check("a", {"": ([0.9], [0.5])}, by=0.5).case("") == "fails"
    assert Check("a", {"": ([0.52], [0.5])}, noise=0.05).case("") == "too close"


HOLDS = Check("it holds", {"x": ([2.0], [1.0])})
FAILS = Check("it fails", {"x": ([1.0], [2.0]), "y": ([2.0], [1.0])})
OPEN = Check("nobody knows", {"x": ([], [2.0]), "y": ([2.0], [1.0])})


@pytest.mark.parametrize(
    ("checks", "word"),
    [
        ([HOLDS], "confirmed"),
        ([HOLDS, OPEN], "undecided"),
        ([HOLDS, OPEN, FAILS], "refuted"),
        ([], "undecided"),
    ],
)
def test_one_check_refutes_and_all_confirm(checks, word):
    assert Verdict(checks, "as in the paper").word == word
    assert Verdict(checks, "", conclusive=False).word == "undecided"


def test_a_size_is_not_refuted_by_a_reduced_budget():
    size = Check("large enough", {"x": ([1.0], [2.0])}, magnitude=True)
    assert Verdict([size], "").word == "refuted"
    assert Verdict([size], "", departs_from_paper=True).word == "undecided"
    assert Verdict([FAILS], "", departs_from_paper=True).word == "refuted"


def test_the_reason_names_what_fails_and_what_is_missing():
    reason = Verdict([HOLDS, OPEN, FAILS], "").reason
    assert reason == "Fails: it fails (fails: x). Open: nobody knows (missing: x). Holds: it holds."
    assert FAILS.explain() == "x: 1 > 2, fails; y: 2 > 1, holds"


def test_seeds_are_counted_without_constants():
    check = Check("a", {"x": ([1.0, 2.0, 3.0], 0.5), "y": ([1.0], [0.5, 0.6])})
    assert Verdict([check], "").seeds == "1 to 3"


def test_the_budget_lists_what_differs_from_the_paper():
    ours = [{"training": {"epochs": 5, "hidden": [8, 8], "lr": 0.1}, "seed": 0}]
    paper = [{"training": {"epochs": 50, "hidden": [8, 8], "lr": 0.2}, "seed": s} for s in (0, 1)]
    assert budget(ours, paper) == "epochs 5 (paper 50); seeds 1 (paper 2)"
    assert budget(paper, paper) == "as in the paper"
