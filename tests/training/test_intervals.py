"""Interval-trained networks: their bounds against sampled points, and certificates against attacks."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import taut
from taut import checker
from taut.attacks import check_certificates, pgd
from taut.data import LabelledData, LabelledSet
from taut.errors import ArgumentError
from taut.nn import Clip
from taut.training import TrainConfig, build_network, load_run, train
from taut.training.worst_case_logits import training_radius, worst_logits

SMALL = {"norm": "linf", "arch": "ibp", "radius": 0.05, "threads": 1}


def network(channels=(), clip=0.1) -> nn.Sequential:
    config = TrainConfig(**SMALL, channels=channels, hidden=(11, 7), clip=clip)
    return randomised(build_network(config, (1, 8, 8), 3).double())


def randomised(model: nn.Sequential) -> nn.Sequential:
    """With offsets and running statistics that are not those of the start, in evaluation mode."""
    torch.manual_seed(0)
    for layer in model:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias, 0, 0.1)
            nn.init.normal_(layer.running_mean, 0, 0.01)  # type: ignore[arg-type]
            nn.init.uniform_(layer.running_var, 1e-3, 1e-2)  # type: ignore[arg-type]
    nn.init.normal_(model[-1].bias, 0, 0.05)  # type: ignore[arg-type]
    return model.eval()


@pytest.mark.parametrize("channels", [(), (4, 5)])
def test_worst_logits_are_never_below_those_of_points_in_the_box(channels):
    generator = torch.Generator().manual_seed(0)
    model = network(channels)
    x = torch.rand(20, 1, 8, 8, dtype=torch.float64, generator=generator)
    labels = torch.randint(3, (20,), generator=generator)
    worst = worst_logits(model, x, labels, 0.07, 0.0, 1.0)
    assert (worst.gather(1, labels[:, None]) == 0).all()
    reached = torch.full_like(worst, -math.inf)
    for step in range(500):
        way = torch.rand(x.shape, generator=generator, dtype=x.dtype) * 2 - 1
        way = way.sign() if step % 2 else way
        logits = model((x + 0.07 * way).clamp(0, 1))
        reached = torch.maximum(reached, logits - logits.gather(1, labels[:, None]))
    assert (reached <= worst + 1e-12).all()
    # Without a box, they are the logits themselves, up to the label's.
    logits = model(x)
    exact = worst_logits(model, x, labels, 0.0, None, None)
    torch.testing.assert_close(exact, logits - logits.gather(1, labels[:, None]))


@pytest.mark.parametrize("channels", [(), (4, 5)])
def test_in_training_mode_boxes_are_normalised_by_the_statistics_of_their_centres(channels):
    model, labels = network(channels), torch.arange(20) % 3
    x = torch.rand(20, 1, 8, 8, dtype=torch.float64)
    for layer in model:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.momentum = None  # the mean of all batches, of which there is one
            layer.reset_running_stats()
    found = worst_logits(model.train(), x, labels, 0.05, 0.0, 1.0)
    for layer in model:
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            places = (
                1
                if isinstance(layer, nn.BatchNorm1d)
                else (8 // 2) ** 2
                if layer is model[2]
                else (8 // 4) ** 2
            )
            assert layer.running_var is not None
            layer.running_var *= 1 - 1 / (20 * places)  # torch keeps the unbiased one
    torch.testing.assert_close(worst_logits(model.eval(), x, labels, 0.05, 0.0, 1.0), found)


def test_worst_logits_agree_with_the_proof():
    """They are negative exactly where `certify`, which shares no code with them, proves the box."""
    model = network()
    x = torch.rand(200, 1, 8, 8, dtype=torch.float64)
    prediction = model(x).argmax(1)
    worst = worst_logits(model, x, prediction, 0.03, 0.0, 1.0)
    others = worst.scatter(1, prediction[:, None], -math.inf).amax(1)
    found = taut.certify(model, x, "linf", method="interval", input_range=(0, 1), radius=0.03)
    clear = others.abs() > 1e-9
    assert ((found.radius > 0.03) == (others < 0))[clear].all()
    assert 0.05 < (others < 0).double().mean() < 0.95


@pytest.mark.parametrize("method", ["interval", "best"])
def test_one_radius_is_proven_as_by_the_search(method):
    model, x = network(clip=0.2), torch.rand(60, 1, 8, 8, dtype=torch.float64)
    whole = taut.certify(model, x, "linf", method=method, input_range=(0, 1))
    middle = float(whole.radius.median())
    found = taut.certify(model, x, "linf", method=method, input_range=(0, 1), radius=middle)
    away = (whole.radius - middle).abs() > 0.01 * middle
    assert ((found.radius > middle) == (whole.radius > middle))[away].all()
    with pytest.raises(ArgumentError, match="certify: `radius` must be"):
        taut.certify(model, x, "linf", method=method, radius=-1.0)


def test_clipping_leaves_black_and_white_pixels_alone():
    x = (torch.rand(5, 1, 8, 8) > 0.5).double()
    low, high = taut.bound_outputs(Clip(0.11, 0.89), x - 0.1, x + 0.1)
    assert (high - low).abs().max() < 1e-12 and (low - x).abs().max() < 1e-12


@pytest.mark.parametrize("given", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0)])
def test_clip_needs_a_range(given):
    with pytest.raises(ArgumentError, match="Clip: `(low|high)` must be"):
        Clip(*given)


def test_the_radius_grows_to_a_little_more_than_the_target():
    found = [training_radius(0.3, step / 100) for step in range(101)]
    assert found == sorted(found) and found[0] == 0 and found[-1] == found[30] > 0.3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("intervals") / "run"
    return train(TrainConfig(**SMALL, hidden=(64,), epochs=12, batch_size=64), out)


def test_it_certifies_by_intervals_and_no_attack_breaks_it(run):
    assert run.result["clean"] > 0.8 and run.result["certified"] > 0.6
    test = run.data().test
    x, labels = test.inputs[:150], test.labels[:150]
    proven = taut.certify(
        run.model, x, "linf", labels=labels, method="interval", input_range=(0, 1)
    )
    by_constant = taut.certify(run.model, x, "linf")
    assert (
        (proven.radius > 0.05).double().mean() > 0.5 > (by_constant.radius > 0.05).double().mean()
    )
    for radius in (0.05, 0.1, 0.2):
        found = pgd(run.model, x, labels, radius=radius, norm="linf", num_steps=10, low=0, high=1)
        check_certificates(found, proven, run.model)


def test_single_precision_costs_next_to_nothing(run):
    x = run.data().test.inputs
    real, single = (
        taut.certify(run.model, x, "linf", None, arithmetic, 1024, "interval", (0, 1), radius=0.05)
        for arithmetic in ("real", "float32")
    )
    shares = [(each.radius > 0.05).double().mean() for each in (real, single)]
    assert shares[0] - 0.01 <= shares[1] <= shares[0]


def test_its_run_is_certified_by_intervals_without_being_told(run):
    from taut.evaluation import EvaluatedClassifier

    classifier = EvaluatedClassifier.from_run(load_run(run.folder), taut.LINF)
    found = classifier.take(torch.arange(40)).certify()
    assert found.method == "interval propagation"
    assert "every entry of an input lies between 0.0 and 1.0" in str(found.hypotheses)
    assert EvaluatedClassifier.from_run(run, taut.L2).method == "lipschitz"


def test_files_are_proven_by_the_checker(run):
    file = run.folder / "model.safetensors"
    proven = checker.check(file.read_bytes())["constant"]
    assert proven == pytest.approx(run.result["lipschitz"], rel=1e-6)


def test_what_it_is_not_made_for_is_refused():
    with pytest.raises(ArgumentError, match="`norm` must be 'linf' with arch='ibp'"):
        train(TrainConfig(arch="ibp"))
    with pytest.raises(ArgumentError, match="`loss` must be 'cross_entropy' with arch='ibp'"):
        train(TrainConfig(**SMALL, loss="hinge"))
    rows = np.random.default_rng(0).normal(size=(40, 3))
    part = LabelledSet(rows, np.arange(40) % 2, ("a", "b"), (), None, None, "rows")
    table = LabelledData(part, part, "rows")
    assert train(TrainConfig(**SMALL, epochs=1), data=table).config.clip == 0
    with pytest.raises(ArgumentError, match="`clip` must be 0 for inputs that are no pixels"):
        train(TrainConfig(**SMALL, clip=0.1), data=table)
    with pytest.raises(ArgumentError, match="`constraint` must be 'none' with arch='ibp'"):
        train(TrainConfig(**SMALL, constraint="linf"))
