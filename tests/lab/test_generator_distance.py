"""The distance of a generator from its data: what is claimed of it is at most the truth."""

import tempfile

import numpy as np
import pytest
import torch

from taut.errors import ArgumentError
from taut.lab import gan_samples
from taut.lab.experiment import PRESETS, Outcome, Result
from taut.lab.generator_distance import EXPERIMENT, PAPER_VALUES, estimate_generator_distance
from taut.training.gan import ImageGenerator
from taut.wasserstein import exact_transport

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
    for verdict in (found.training, found.held_out):
        assert verdict.lower < truth
        assert verdict.lower < verdict.estimate
        assert abs(verdict.estimate - truth) < 0.1 * truth


def test_the_lower_bound_against_few_images_is_below_exact_transport():
    net = frozen(1)
    images = torch.rand(40, 1, 4, 4, generator=torch.Generator().manual_seed(2)) * 2 - 1
    found = estimate_generator_distance(net, images, images, CRITIC, num_fresh=1000)
    samples = net.sample(1200, torch.Generator().manual_seed(3)).flatten(1).double()
    # Sampling noise of the exact figure is far below the gap that is asked for.
    exact = exact_transport(images.flatten(1).double(), samples).cost
    assert 0 < found.training.lower < exact
    assert found.training.estimate < 1.05 * exact


def test_shapes_must_be_the_generators():
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


def test_smoke_cells_run_twice_to_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cells = EXPERIMENT.cells("smoke")
    results = [Result(cell.config, EXPERIMENT.run(cell.config)) for cell in cells[3:8:4]]
    again = EXPERIMENT.run(cells[3].config)
    assert again.numbers == results[0].outcome.numbers
    assert len(list(tmp_path.glob("taut-generators-*/*/result.json"))) == 1
    numbers = results[0].outcome.numbers
    assert numbers["lower"] <= numbers["objective"]
    assert numbers["held_out_lower"] <= numbers["held_out"]
    table = EXPERIMENT.show(results).tables[0]
    shown = [row for row, entries in table.rows.items() if entries[0].mean is not None]
    assert shown == ["GroupSort(4), spectral", "MaxMin, orthonormal"]


def test_the_exhibit_of_nothing_has_the_papers_numbers():
    exhibit = EXPERIMENT.show([])
    table = exhibit.tables[0]
    assert table.columns == ["mnist", "cifar10"]
    assert [entry.paper for entry in table.rows["GroupSort(9), orthonormal"]] == [2.31, 2.23]


def test_words_count_the_wins_of_orthonormal_layers():
    results = [
        Result(
            {"data": "mnist", "constraint": constraint, "activation": activation, "seed": 0},
            Outcome({"objective": value["mnist"]}),
        )
        for (constraint, activation), value in PAPER_VALUES.items()
    ]
    words = " ".join(EXPERIMENT.show(results).words)
    assert "Orthonormal layers find more than spectral ones with 5 of 5 activations." in words


def test_samples_by_critic_are_shown_as_they_were_recorded(tmp_path, monkeypatch):
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
