"""Distance networks: they learn, their means are those of evaluation, and no attack breaks a radius."""

import math
from itertools import pairwise

import pytest
import torch

import taut
from taut import checker
from taut.attacks import check_certificates, pgd
from taut.errors import ArgumentError
from taut.nn import Centering, LinfDistance
from taut.training import TrainConfig, load_run, train
from taut.training.linf_distance_training import (
    cross_entropy_weight,
    exponent_at,
    set_exponent,
    start_distances,
    update_means,
)

pytestmark = pytest.mark.slow

SMALL = {"norm": "linf", "arch": "distance", "hidden": (48, 48), "threads": 1}


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        LinfDistance(6, 9), Centering(9, momentum=1.0, bias=False), LinfDistance(9, 3)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("distances") / "run"
    return train(TrainConfig(**SMALL, epochs=14, batch_size=64, radius=0.1), out)


def test_it_certifies_more_than_rows_in_the_l1_ball_and_no_attack_breaks_it(run):
    assert run.result["clean"] > 0.8 and run.result["certified"] > 0.6
    assert run.result["lipschitz"] == pytest.approx(run.config.lipschitz, rel=1e-12)
    test = run.data().test
    x, labels = test.inputs[:100], test.labels[:100]
    proven = taut.certify(run.model, x, "linf", labels=labels, method="best", input_range=(0, 1))
    for radius in (0.05, 0.1, 0.2):
        found = pgd(run.model, x, labels, radius=radius, norm="linf", num_steps=10)
        check_certificates(found, proven, run.model)
    rows = [row["certified"] for row in run.history]
    assert rows[0] is None and rows[-1] is not None


def test_files_are_proven_by_the_checker(run):
    file = run.folder / "model.safetensors"
    assert checker.check(file.read_bytes())["constant"] == pytest.approx(run.config.lipschitz)
    loaded = load_run(run.folder).model
    x = run.data().test.inputs[:5]
    with torch.no_grad():
        assert torch.equal(loaded(x), run.model(x))


def test_exponents_rise_to_infinity_and_the_cross_entropy_fades():
    steps = [step / 1000 for step in range(1001)]
    exponents = [exponent_at(step) for step in steps]
    assert exponents == sorted(exponents) and exponents[0] == 8 and exponents[-1] == math.inf
    finite = [p for p in exponents if math.isfinite(p)]
    assert max(finite) > 1000
    assert max(b / a for a, b in pairwise(finite)) < 1.01  # no jumps
    weights = [cross_entropy_weight(step) for step in steps]
    assert weights == sorted(weights, reverse=True) and weights[-1] > 0


def test_running_means_are_those_of_maxima():
    model, x = network(), torch.randn(50, 6)
    set_exponent(model, 8)
    model(x)
    assert not update_means(model, x)
    distances = (x[:, None] - model[0].weight).abs().amax(-1)  # type: ignore[operator]
    torch.testing.assert_close(model[1].running_mean, distances.mean(0))
    assert update_means(model, x)
    assert update_means(torch.nn.Linear(6, 3), x)


def test_each_unit_starts_with_an_input_of_its_own_of_largest_variance():
    model, x = network(), torch.randn(500, 6) * torch.tensor([1.0, 2.0, 0.1, 4.0, 3.0, 0.0]) + 5
    start_distances(model, x)
    far = (model[0].weight - x.mean()).argmin(1)  # type: ignore[operator]
    assert far[:6].tolist() == [3, 4, 1, 0, 2, 5]
    assert len(set((model[2].weight).argmin(1).tolist())) == 3  # type: ignore[operator]


def test_what_it_is_not_made_for_is_refused():
    with pytest.raises(ArgumentError, match="`norm` must be 'linf' with arch='distance'"):
        train(TrainConfig(arch="distance"))
    with pytest.raises(ArgumentError, match="`patience` must be 0"):
        train(TrainConfig(**SMALL, patience=3))
