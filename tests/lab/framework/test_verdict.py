"""Verdicts: what follows from inequalities, at which budget."""

import pytest

from taut_lab.framework.verdict import Part, Verdict, budget


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
    assert Part("a", {"": (larger, smaller)}).case("") == expected


def test_the_difference_and_the_noise_are_part_of_the_rule():
    assert Part("a", {"": ([0.5], [0.6])}, by=-0.2).case("") == "holds"
    assert Part("a", {"": ([0.9], [0.5])}, by=0.5).case("") == "fails"
    assert Part("a", {"": ([0.52], [0.5])}, noise=0.05).case("") == "too close"


HOLDS = Part("it holds", {"x": ([2.0], [1.0])})
FAILS = Part("it fails", {"x": ([1.0], [2.0]), "y": ([2.0], [1.0])})
OPEN = Part("nobody knows", {"x": ([], [2.0]), "y": ([2.0], [1.0])})


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([HOLDS], "confirmed"),
        ([HOLDS, OPEN], "undecided"),
        ([HOLDS, OPEN, FAILS], "refuted"),
        ([], "undecided"),
    ],
)
def test_one_part_refutes_and_all_confirm(parts, word):
    assert Verdict(parts, "as in the paper").word == word
    assert Verdict(parts, "", conclusive=False).word == "undecided"


def test_a_size_is_not_refuted_by_a_reduced_budget():
    size = Part("large enough", {"x": ([1.0], [2.0])}, magnitude=True)
    assert Verdict([size], "").word == "refuted"
    assert Verdict([size], "", reduced=True).word == "undecided"
    assert Verdict([FAILS], "", reduced=True).word == "refuted"


def test_the_reason_names_what_fails_and_what_is_missing():
    reason = Verdict([HOLDS, OPEN, FAILS], "").reason
    assert reason == "Fails: it fails (fails: x). Open: nobody knows (missing: x). Holds: it holds."
    assert FAILS.explain() == "x: 1 against 2, fails; y: 2 against 1, holds"


def test_seeds_are_counted_without_constants():
    part = Part("a", {"x": ([1.0, 2.0, 3.0], 0.5), "y": ([1.0], [0.5, 0.6])})
    assert Verdict([part], "").seeds == "1 to 3"


def test_the_budget_lists_what_differs_from_the_paper():
    ours = [{"training": {"epochs": 5, "hidden": [8, 8], "lr": 0.1}, "seed": 0}]
    paper = [{"training": {"epochs": 50, "hidden": [8, 8], "lr": 0.2}, "seed": s} for s in (0, 1)]
    assert budget(ours, paper) == "epochs 5 (paper 50); seeds 1 (paper 2)"
    assert budget(paper, paper) == "as in the paper"
