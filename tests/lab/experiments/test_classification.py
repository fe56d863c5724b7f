"""The experiments with classifiers: the paper's numbers, and the quantities they compute."""

import numpy as np
import pytest
import torch
from torch import nn

from taut.data import load_labelled
from taut.evaluation import EvaluatedClassifier, evaluate_robustness
from taut.norms import LINF
from taut.training import Examples, InputSpec
from taut_lab.experiments.activation_statistics import activation_frequencies
from taut_lab.experiments.adversarial_robustness import _count_changed_within
from taut_lab.experiments.classifier_training import best_errors
from taut_lab.experiments.interpretable_gradients import targeted_gradients
from taut_lab.experiments.registry import find_experiment
from taut_lab.experiments.small_mnist import class_balanced_subset
from taut_lab.framework.experiment import Outcome, Result

# Row, column, and the number in the source of the paper.
PAPER = {
    "adversarial-robustness": [
        ("Margin-0.1 MaxMin", "PGD 0.1", 44.4),
        ("Margin-0.3 MaxMin", "PGD 0.3", 77.7),
        ("Margin-0.3 ReLU", "clean", 16.9),
        ("PGD 0.15", "FGS 0.3", 52.9),
        ("Standard ReLU", "FGS 0.1", 98.3),
    ],
    "mnist-classify": [
        ("Björck", "MaxMin", 1.25),
        ("Standard", "FullSort", 3.53),
        ("Spectral Jac", "Maxout", 1.02),
        ("L-inf", "GS(4)", 2.22),
        ("Dropout", "ReLU", 1.27),
    ],
    "small-mnist": [
        ("Standard, ReLU", "300 images", 12.40),
        ("Björck, MaxMin", "500 images", 6.98),
        ("Dropout, MaxMin", "10000 images", 1.70),
        ("Weight Decay, MaxMin", "5000 images", 2.55),
    ],
    "cifar-classify": [
        ("WRN-28-4", "Standard, ReLU", 95.29),
        ("WRN-28-4", "Parseval, MaxMin", 94.83),
        ("WRN-28-4", "Spec Jac, MaxMin", 94.62),
    ],
    "jacobian-norms": [("ReLU", "largest", 8.0)],
}


@pytest.mark.parametrize("name", sorted(PAPER))
def test_the_numbers_of_the_paper_are_those_of_its_source(name):
    table = find_experiment(name).show([]).tables[0]
    for row, column, number in PAPER[name]:
        assert table.rows[row][list(table.columns).index(column)].paper == number


@pytest.mark.slow
def test_the_paper_reports_a_tenth_of_neurons_always_active(smoke_results):
    name = "activation-statistics"
    table = find_experiment(name).show(smoke_results(name)).tables[0]
    column = list(table.columns).index("always active")
    assert table.rows["1-Lipschitz"][column].paper == 10.0


@pytest.mark.slow
def test_no_attack_succeeds_within_a_certified_radius(smoke_results):
    for result in smoke_results("adversarial-robustness"):
        assert result.outcome.numbers["violations"] == 0


def test_attacks_within_the_radii_of_the_paper_are_counted():
    # f(x) = (K x, -K x): at x = 0.1 the margin is 0.2 K, and x = -0.01 is another class.
    model = nn.Linear(1, 2, bias=False)
    model.weight.data = torch.tensor([[1000.0], [-1000.0]])
    examples = Examples(torch.tensor([[0.1]]), torch.tensor([0]))
    spec = InputSpec(shape=(1,), classes=("0", "1"))
    classifier = EvaluatedClassifier("line", model.eval(), spec, examples, LINF)
    seen = evaluate_robustness(classifier, (0.11,), ("pgd",), num_steps=20, num_minimal=0)
    assert _count_changed_within(seen, 500.0) == 1  # radius 0.4
    assert _count_changed_within(seen, 1000.0) == 1  # radius 0.2
    assert _count_changed_within(seen, 2000.0) == 0  # radius 0.1, which is correct
    assert not seen.violations


@pytest.mark.slow
def test_no_jacobian_norm_exceeds_the_lipschitz_constant(smoke_results):
    for result in smoke_results("jacobian-norms"):
        numbers = result.outcome.numbers
        assert numbers["largest"] <= numbers["lipschitz"] * (1 + 1e-5)
        assert sum(result.outcome.series["norms"]) == pytest.approx(1, abs=1e-3)


def test_activation_frequencies_are_means_over_all_batches():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1))
    model.double()
    x = torch.randn(5000, 3, dtype=torch.float64)
    w1, b1, w2, b2 = (p.detach().numpy() for p in list(model.parameters())[:4])
    first = np.maximum(x.numpy() @ w1.T + b1, 0)
    second = first @ w2.T + b2
    expected = np.concatenate([(first > 0).mean(0), (second > 0).mean(0)])
    np.testing.assert_allclose(activation_frequencies(model, x).numpy(), expected)


def test_targeted_gradients_match_finite_differences_of_the_loss():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    images = torch.rand(2, 1, 2, 2, dtype=torch.float64)
    found = targeted_gradients(model, images, 1)

    def loss(x: torch.Tensor) -> float:
        return -torch.log_softmax(model(x), 1)[:, 1].sum().item()

    step = torch.zeros_like(images)
    step[1, 0, 0, 1] = 1e-6
    slope = (loss(images + step) - loss(images - step)) / 2e-6
    assert found[1, 0, 0, 1].item() == pytest.approx(slope, rel=1e-6)


def test_class_balanced_subset_has_equal_counts_and_depends_on_the_seed():
    rows = load_labelled("digits").train
    few = class_balanced_subset(rows, 7, seed=3)
    assert few.counts == (7,) * 10
    assert np.array_equal(few.inputs, class_balanced_subset(rows, 7, seed=3).inputs)
    assert not np.array_equal(few.inputs, class_balanced_subset(rows, 7, seed=4).inputs)


def test_the_error_is_that_of_the_best_setting_and_an_unfinished_search_does_not_count():
    def result(seed, constant, validation, error):
        config = {"seed": seed, "method": "Björck", "training": {"lipschitz": constant}}
        return Result(config, Outcome({"validation_error": validation, "error": error}))

    results = [result(0, 1.0, 0.2, 0.1), result(0, 10.0, 0.1, 0.3), result(1, 10.0, 0.4, 0.5)]
    assert best_errors(results, method="Björck") == [30.0, 50.0]
    # Without a setting that the second seed lacks, both seeds decide.
    assert best_errors([*results, result(1, 1.0, 0.0, 0.6)], method="Björck") == [10.0, 60.0]
    assert best_errors(results, 3, method="Björck") == []
    assert best_errors(results, method="Björck", lipschitz=1.0) == [10.0]
    assert best_errors(results, method="Dropout") == []
