"""A critic in a file judges later rows as the one in memory does, and altered files are refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import taut
from taut.certificates import BoundedEvaluation
from taut.data import TableStream
from taut.errors import ArgumentError, DamagedFileError, DataError
from taut.nn import ConeCritic
from taut.transport import load_critic, wasserstein
from taut.transport.critic_selection import SelectedCritic
from taut.transport.distance_bounds import Scores, bound_mean_score
from taut.transport.feature_scaling import FeatureScaling
from taut.transport.saved_critic import SavedCritic

QUICK: dict[str, Any] = {"num_steps": 30, "num_permutations": 19}


def normal(n, shift=0.0, seed=0):
    g = torch.Generator().manual_seed(seed)
    points = torch.randn(n, 2, generator=g, dtype=torch.float64)
    points[:, 0] += shift
    return points


@pytest.fixture(scope="module", params=["cones", "network", "finite"])
def kept(request, tmp_path_factory):
    finite = request.param == "finite"
    critics = ("cones",) if finite else (request.param,)
    result = wasserstein(
        normal(300, 2.0),
        normal(400, seed=1),
        critics=critics,
        finite=finite,
        scaling="standard",
        **QUICK,
    )
    path = tmp_path_factory.mktemp("saved") / "critic.safetensors"
    result.save(path)
    return result, path


def test_a_file_holds_all_of_the_critic(kept):
    result, path = kept
    saved = load_critic(path)
    new = normal(50, seed=5)
    assert torch.equal(saved.score(new), result.score(new))
    assert saved.lipschitz.value == pytest.approx(result.lipschitz.value)
    assert saved.limits == result.limits and saved.finite == result.finite
    for mine, theirs in zip(saved.scores, result.scores, strict=True):
        assert torch.equal(mine, theirs)
    assert saved.score(new[:1]).shape == (1,)
    assert saved.scaling.method == "standard"


def test_later_rows_are_told_from_the_side_they_do_not_come_from(kept):
    result, path = kept
    scale = result.scaling.scale[0].item()
    from_x, from_y = load_critic(path).lower_bounds(normal(400, seed=7), confidence=0.9)
    # In the units of the file the new rows are 2 / scale from x and 0 from y.
    assert 0.5 / scale < from_x.value <= 2 / scale
    assert (from_x.side, from_x.confidence) == ("lower", 0.9)
    if not result.finite:
        assert from_y.value <= 0.1


def test_rows_beyond_the_reference_are_noticed_too(kept):
    _, path = kept
    from_x, from_y = load_critic(path).lower_bounds(normal(400, shift=-3.0, seed=8))
    assert from_x.value > 0 and from_y.value >= 0


@pytest.mark.parametrize("kept", ["cones", "network"], indirect=True)
@pytest.mark.slow
def test_later_bounds_hold_as_often_as_they_say(kept):
    _, path = kept
    saved = load_critic(path)
    # From y the distance is 0, so a bound above 0 is a failure: probability at most 1/4 each.
    failures = sum(
        saved.lower_bounds(normal(100, seed=seed), confidence=0.75)[1].value > 0
        for seed in range(100, 140)
    )
    assert failures < 20


def test_streams_and_named_columns_are_matched(tmp_path):
    x, y = (pd.DataFrame(normal(60, s).numpy(), columns=["a", "b"]) for s in (1.0, 0.0))
    result = wasserstein(x, y, critics=("cones",), **QUICK)
    result.save(tmp_path / "critic")
    saved = load_critic(tmp_path / "critic")
    plain = saved.score(x)
    assert torch.equal(saved.score(x[["b", "a"]]), plain)
    np.save(tmp_path / "x.npy", x.to_numpy())
    stream = TableStream(tmp_path / "x.npy", batch_rows=7)
    torch.testing.assert_close(saved.score(stream), plain, rtol=1e-12, atol=1e-12)
    with pytest.raises(DataError, match="none called 'a'"):
        saved.score(x.rename(columns={"a": "c"}))
    with pytest.raises(DataError, match="must have the 2 columns that .* got 3"):
        saved.score(np.zeros((4, 3)))
    wrong: tuple[Any, ...] = (1.0, 1 - 2**-53, "0.9")
    for confidence in wrong:
        with pytest.raises(ArgumentError, match="lower_bounds: `confidence` must"):
            saved.lower_bounds(x, confidence)
    with pytest.raises(ArgumentError, match="lower_bounds: `seed` must"):
        saved.lower_bounds(x, seed=-1)


def cancelling(dim: int = 1) -> nn.Module:
    """The first coordinate, computed as (x + 1e8) - 1e8: off by up to 7.5e-9."""
    layers = [nn.Linear(dim, 1).double(), nn.Linear(1, 1).double()]
    for layer, offset in zip(layers, (1e8, -1e8), strict=True):
        nn.init.eye_(layer.weight)
        nn.init.constant_(layer.bias, offset)
    return nn.Sequential(*layers).eval()


# Nearly equal numbers whose sums with 1e8 are rounded up and down: 3e-10 apart, scores 1.5e-8.
HIGH, LOW = (torch.full((5000, 1), at, dtype=torch.float64) for at in (7.6e-9, 7.3e-9))
APART = 3e-10


@pytest.mark.parametrize("finite", [False, True])
def test_a_critic_that_cancels_proves_no_more_than_its_rounding_allows(finite, tmp_path):
    critic, zeros = cancelling(), torch.zeros(1, dtype=torch.float64)
    assert (critic(HIGH) - critic(LOW)).min() > 1e-8  # so the fixed part of a score is not enough
    sides = [Scores(*BoundedEvaluation(critic, 1)(side)) for side in (LOW, LOW)]
    saved = SavedCritic(
        critic=critic,
        kind="network",
        lipschitz=taut.bound_lipschitz(critic),
        scaling=FeatureScaling("none", zeros, zeros + 1),
        columns=None,
        image_shape=None,
        limits=(-1e-8, 3e-8),
        scores=(sides[0].values, sides[1].values),
        errors=(sides[0].errors, sides[1].errors),
        means=(bound_mean_score(sides[0]), bound_mean_score(sides[1])),
        finite=finite,
    )
    saved.save(tmp_path / "critic")
    for one in (saved, load_critic(tmp_path / "critic")):
        assert all(bound.value <= APART for bound in one.lower_bounds(HIGH))
        assert all(bound.value <= 1e-7 for bound in one.lower_bounds(HIGH + 1e-7))


@pytest.mark.parametrize("finite", [False, True])
def test_comparisons_allow_for_the_rounding_of_the_critic(finite, monkeypatch):
    chosen = SelectedCritic("network", cancelling(2), (), 0.0)
    monkeypatch.setattr("taut.transport.comparison.select_critic", lambda *args, **more: chosen)
    monkeypatch.setattr("taut.transport.finite_comparison._MOST_PAIRS", 0)
    # Scaling by the mean moves both sides alike; a point of each at the same place widens limits.
    # A second column of zeros, since critics are not selected on a line.
    x, y = (nn.functional.pad(side[:200], (0, 1)) for side in (HIGH, LOW))
    monkeypatch.setattr(
        "taut.transport.comparison.fit_scaling",
        lambda *args: (FeatureScaling("none", torch.zeros(2).double(), torch.ones(2).double()), []),
    )
    result = wasserstein(x, y, finite=finite, **QUICK)
    assert result.lower.value <= APART
    assert result.errors[0].shape == result.scores[0].shape
    far = wasserstein(x + torch.tensor([1.0, 0.0]), y, finite=finite, **QUICK)
    assert 0.5 < far.lower.value <= 1 + APART


@pytest.mark.parametrize("finite", [False, True])
def test_a_constant_critic_gives_the_lower_bound_0(finite, monkeypatch):
    constant = nn.Linear(2, 1).double().eval()
    nn.init.zeros_(constant.weight)
    chosen = SelectedCritic("network", constant, (), 0.0)
    monkeypatch.setattr("taut.transport.comparison.select_critic", lambda *args, **more: chosen)
    monkeypatch.setattr("taut.transport.finite_comparison._MOST_PAIRS", 0)
    result = wasserstein(normal(40, 1.0), normal(40), finite=finite, **QUICK)
    assert result.lipschitz.value == 0 and result.lower.value == 0 < result.upper.value


def test_at_most_100_000_scores_are_kept(tmp_path):
    result = wasserstein(normal(60, 1.0), normal(60, seed=1), critics=("cones",), **QUICK)
    many = torch.arange(150_000.0, dtype=torch.float64)
    sides = Scores(many, 0 * many), Scores(many[:5], 0 * many[:5])
    scores, errors = zip(*sides, strict=True)
    means = bound_mean_score(sides[0]), bound_mean_score(sides[1])
    saved = replace(result, scores=scores, errors=errors, means=means).saved
    assert len(saved.scores[0]) == 100_000 and len(saved.scores[0].unique()) == 100_000
    # Drawn uniformly, whatever the order: the mean of the part is that of the whole.
    assert saved.scores[0].mean().item() == pytest.approx(many.mean().item(), rel=0.01)
    low, high = saved.means[0]
    assert low <= many.mean().item() <= high < low + 1e-9 and len(saved.scores[1]) == 5


def test_an_altered_file_is_refused(kept, tmp_path):
    _, path = kept
    data = bytearray(path.read_bytes())
    for place in range(9, len(data), len(data) // 40):
        data[place] ^= 1
        (tmp_path / "altered").write_bytes(data)
        with pytest.raises(DamagedFileError):
            load_critic(tmp_path / "altered")
        data[place] ^= 1
    (tmp_path / "short").write_bytes(data[:-8])
    with pytest.raises(DamagedFileError):
        load_critic(tmp_path / "short")


def test_a_network_without_scores_is_no_critic(tmp_path):
    taut.save(taut.nn.mlp([2, 4, 1]), tmp_path / "net")
    with pytest.raises(DamagedFileError, match="must hold a critic with its scores"):
        load_critic(tmp_path / "net")


GOOD = {
    "kind": "cones",
    "scaling": "none",
    "columns": None,
    "image_shape": None,
    "limits": [0.0, 1.0],
    "means": [[0.5, 0.5], [0.0, 0.0]],
    "finite": False,
}
FORGED = [
    {"limits": [1.0, 0.0]},
    {"limits": [0.0]},
    {"limits": [0, 1]},
    {"means": [["a", 0.5], [0.0, 0.0]]},
    {"means": [[0.5, 0.0], [0.0, 0.0]]},
    {"means": [0.5, 0.0]},
    {"columns": ["a"]},
    {"columns": "ab"},
    {"image_shape": [1.5]},
    {"finite": 1},
    {"scaling": "odd"},
]


@pytest.mark.parametrize("number", range(len(FORGED) + 6))
def test_a_file_whose_parts_do_not_fit_is_refused(number, tmp_path):
    extra_tensors = {
        "shift": torch.zeros(2).double(),
        "scale": torch.ones(2).double(),
        "x_scores": torch.ones(3).double(),
        "y_scores": torch.zeros(3).double(),
        "x_errors": torch.zeros(3).double(),
        "y_errors": torch.zeros(3).double(),
    }
    stated = {**GOOD, **(FORGED[number] if number < len(FORGED) else {})}
    if number >= len(FORGED):
        name, wrong = [
            ("scale", torch.zeros(2).double()),
            ("shift", torch.zeros(3).double()),
            ("x_scores", torch.ones(3)),
            ("y_scores", torch.ones(3, 1).double()),
            ("x_errors", torch.ones(2).double()),
            ("y_errors", -torch.ones(3).double()),
        ][number - len(FORGED)]
        extra_tensors[name] = wrong
    model = ConeCritic(3, 2).double().eval()
    path = tmp_path / "forged"
    taut.save(
        model, path, input_shape=[2], metadata={"critic": stated}, extra_tensors=extra_tensors
    )
    with pytest.raises(DamagedFileError, match="must hold a critic with its scores"):
        load_critic(path)


def test_the_honest_twin_of_the_forged_files_is_read(tmp_path):
    extra_tensors = {
        "shift": torch.zeros(2).double(),
        "scale": torch.ones(2).double(),
        "x_scores": torch.ones(3).double(),
        "y_scores": torch.zeros(3).double(),
        "x_errors": torch.zeros(3).double(),
        "y_errors": torch.zeros(3).double(),
    }
    model = ConeCritic(3, 2, sign=-1, temperature=0.3).double().eval()
    taut.save(
        model,
        tmp_path / "twin",
        input_shape=[2],
        metadata={"critic": GOOD},
        extra_tensors=extra_tensors,
    )
    assert load_critic(tmp_path / "twin").limits == (0.0, 1.0)
    loaded = taut.load(tmp_path / "twin")
    points = normal(5)
    assert torch.equal(loaded(points), model(points)) and "sign=-1" in repr(loaded)
