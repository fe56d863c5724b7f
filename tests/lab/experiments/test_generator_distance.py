"""Distances between generators and data: lower bounds are at most the true distance."""

import tempfile

import numpy as np
import pytest
import torch

from taut.errors import ArgumentError
from taut.training.gan import ImageGenerator
from taut.transport import exact_transport
from taut_lab.experiments import gan_samples
from taut_lab.experiments.generator_distance import (
    EXPERIMENT,
    PAPER_VALUES,
    estimate_generator_distance,
)
from taut_lab.framework.experiment import PRESETS, Outcome, Result

CRITIC = {
    "seed": 0,
    "activation": "maxmin",
    "hidden": [16],
    "num_steps": 60,
    "batch_size": 32,
    "lr": 0.01,
}


def frozen(seed: int = 0) -> ImageGenerator:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = ImageGenerator((1, 4, 4), latent=3, hidden=8, width=2)
    return net.eval().requires_grad_(False)


def test_the_lower_bound_is_below_and_the_estimate_near_a_known_distance():
    net = frozen()
    drawn = net.sample(4000, torch.Generator().manual_seed(9))
    shift = 0.4
    # A shift moves every point by the same vector, so the distance is its length.
    images = drawn + shift
    truth = shift * np.sqrt(16)
    found = estimate_generator_distance(net, images[:2000], images[2000:], CRITIC, num_fresh=1500)
    for evaluation in (found.training, found.held_out):
        assert evaluation.lower < truth
        assert evaluation.lower < evaluation.estimate
        assert abs(evaluation.estimate - truth) < 0.1 * truth


def test_the_lower_bound_against_few_images_is_below_exact_transport():
    net = frozen(1)
    images = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(2)) * 2 - 1
    found = estimate_generator_distance(net, images, images, CRITIC, num_fresh=1000)
    samples = net.sample(1200, torch.Generator().manual_seed(3)).flatten(1).double()
    # Sampling noise of the exact figure is far below the gap that is asked for.
    exact = exact_transport(images.flatten(1).double(), samples).cost
    assert 0 < found.training.lower < exact
    assert found.training.estimate < 1.05 * exact


def test_images_must_have_the_shape_of_the_generator():
    with pytest.raises(ArgumentError, match=r"must have the generator's shape \(n, 1, 4, 4\)"):
        estimate_generator_distance(frozen(), torch.zeros(9, 16), torch.zeros(9, 16), CRITIC)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_row_of_the_table_has_its_cells(preset):
    cells = EXPERIMENT.cells(preset)
    seeds = {cell.config["seed"] for cell in cells}
    data = {cell.config["data"] for cell in cells}
    assert len(cells) == len(PAPER_VALUES) * len(seeds) * len(data)
    for cell in cells:
        assert all(width % 36 == 0 for width in cell.config["hidden"])
        assert cell.config["gan"]["data"] == cell.config["data"]


@pytest.mark.slow
def test_generators_are_trained_once_and_shown_by_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = EXPERIMENT.cells("smoke")
    results = [Result(cell.config, EXPERIMENT.run(cell.config)) for cell in cells[3:8:4]]
    again = EXPERIMENT.run(cells[3].config)
    assert again.numbers == results[0].outcome.numbers
    assert len(list(tmp_path.glob("taut-*-generators-*/*/result.json"))) == 1
    numbers = results[0].outcome.numbers
    assert numbers["lower"] <= numbers["objective"]
    assert numbers["held_out_lower"] <= numbers["held_out"]
    table = EXPERIMENT.show(results).tables[0]
    shown = [row for row, entries in table.rows.items() if entries[0].mean is not None]
    assert shown == ["GroupSort(4), spectral", "MaxMin, orthonormal"]


def test_the_table_without_results_has_the_numbers_of_the_paper():
    presentation = EXPERIMENT.show([])
    table = presentation.tables[0]
    assert table.columns == ["mnist", "cifar10"]
    assert [entry.paper for entry in table.rows["GroupSort(9), orthonormal"]] == [2.31, 2.23]


def test_the_numbers_of_the_paper_do_not_refute_its_claim():
    results = [
        Result(
            {"data": data, "constraint": constraint, "activation": activation, "seed": 0},
            Outcome({"objective": value}),
        )
        for (constraint, activation), values in PAPER_VALUES.items()
        for data, value in values.items()
    ]
    outcomes = {check.statement: check.outcome for check in EXPERIMENT.checks(results)}
    assert outcomes["orthonormal layers above spectral ones"] == "holds"
    # With spectral layers on CIFAR-10 the paper has 1.62 and 1.63, within their noise.
    assert outcomes.pop("GroupSort(4) above MaxMin") == "undecided"
    assert set(outcomes.values()) == {"holds"}
    assert EXPERIMENT.checks(results[:2])[0].missing


def test_samples_are_shown_for_each_critic(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = gan_samples.EXPERIMENT.cells("smoke")
    assert len(cells) == len(gan_samples.KINDS)
    results = [Result(c.config, gan_samples.EXPERIMENT.run(c.config)) for c in cells[:2]]
    shades = np.asarray(results[0].outcome.series["shades"])
    assert shades.shape == (25, 1, 8, 8)
    assert 0 <= shades.min() and shades.max() <= 15
    assert "lipschitz" in results[0].outcome.numbers
    assert "lipschitz" not in results[1].outcome.numbers
    figures = gan_samples.EXPERIMENT.show(results).figures
    assert list(figures or {}) == ["gan-digits-lipschitz-maxmin", "gan-digits-clipped-leaky-relu"]
