"""Timed layers and activations: the same task, the right function, the effective weight."""

from functools import partial

import numpy as np
import pytest
import torch

from taut_lab.benchmarks import peer_imports
from taut_lab.benchmarks.timed_layers import (
    PLAIN,
    PLAIN_CONV,
    RELU,
    TrainedModel,
    activation_makers,
    conv_layers_in_training,
    dense_makers,
    image_batches,
    networks_in_training,
    timed_activations,
    weight_errors,
)
from taut_lab.experiments.bjorck_runtime import timed_bjorck
from taut_lab.framework.timing import TimedFunction

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def sorted_in_groups(x, groups):
    """Each group, given as a list of channels, in ascending order."""
    made = x.detach().double().numpy().copy()
    for group in groups:
        made[:, group] = np.sort(made[:, group], axis=1)
    return made


def networks(width=8, **more):
    return networks_in_training(width, 1e-3, image_batches("digits", 4, count=3), **more)


def test_images_are_enlarged_digits():
    (x, labels), other, _ = image_batches("digits", 5, count=3)
    assert x.shape == (5, 784) and labels.shape == (5,) and not torch.equal(x, other[0])
    image = x[0].view(28, 28)
    assert 0 <= x.min() and 0.5 < x.max() <= 1 and len(image.unique(dim=0)) <= 8


@pytest.mark.parametrize("name", dense_makers(peers=False))
def test_a_run_trains_every_layer(name):
    (network,) = (one for one in networks(peers=False) if one.function.name == name)
    before = [weight.clone() for weight in network.weights()]
    network.function.run()
    after = network.weights()
    assert [tuple(w.shape) for w in after] == [(8, 784), (8, 8), (8, 8), (10, 8)]
    for old, new in zip(before, after, strict=True):
        assert not new.requires_grad and not torch.equal(old, new)


def test_the_loss_falls_in_training():
    data = image_batches("digits", 64, count=2)
    for network in networks_in_training(32, 3e-3, data, peers=False):
        first, *_, last = (network.function.run() for _ in range(40))
        assert isinstance(first, float) and isinstance(last, float)
        assert last < 0.7 * first, network.function.name


def test_the_weights_are_those_in_use():
    for network in networks(peers=False):
        network.function.run()
        last = network.layers[-1]
        with torch.no_grad():
            images = last(torch.eye(8)) - last(torch.zeros(1, 8))
        torch.testing.assert_close(images.mT, network.weights()[-1], atol=1e-6, rtol=0)


def test_layers_of_other_libraries_train_too():
    pytest.importorskip("deel.torchlip")
    made = networks()
    names = [network.function.name for network in made]
    assert names[0] == PLAIN and len(set(names)) == len(names)
    for way in ("cayley", "matrix_exp"):
        assert f"torch orthogonal, {way}" in names
    for network in made:
        network.function.run()
        error, excess = network.errors()
        assert error is not None and excess is not None
        if "rthogonal" in network.function.name:
            assert error < 1e-2


def test_errors_are_those_of_the_singular_values():
    u, _, v = np.linalg.svd(np.random.default_rng(0).normal(size=(5, 5)))
    weight = torch.tensor(u @ np.diag([1.25, 1.1, 1.0, 0.9, 0.5]) @ v)
    error, excess = weight_errors(weight)
    assert error == pytest.approx(0.5, abs=1e-12) and excess == pytest.approx(0.25, abs=1e-12)
    assert weight_errors(0.5 * torch.eye(3)) == (0.5, -0.5)
    assert weight_errors(torch.full((2, 2), torch.nan)) == (None, None)
    layers = tuple(torch.nn.Linear(3, 3) for _ in range(2))
    model = TrainedModel(TimedFunction("pair", lambda: None), layers, weight_errors)
    for layer, factor in zip(layers, (0.5, 1.25), strict=True):
        layer.weight.data = factor * torch.eye(3)
    assert model.errors() == (0.5, 0.25)
    layers[0].weight.data[0, 0] = torch.nan
    assert model.errors() == (None, None)


def test_activations_compute_the_function_of_their_name():
    made = activation_makers(peers=False)
    halves = [[i, i + 4] for i in range(4)]
    ascending = sorted_in_groups(X, halves)
    max_min = np.concatenate([ascending[:, 4:], ascending[:, :4]], axis=1)
    expected = {
        RELU: np.maximum(X.double().numpy(), 0),
        "taut MaxMin": max_min,
        "torch maximum and minimum": max_min,
        "taut GroupSort(4)": sorted_in_groups(X, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        "taut FullSort": np.sort(X.double().numpy(), axis=1),
        "taut Maxout(2)": ascending[:, 4:],
    }
    assert next(iter(made)) == RELU and set(made) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(made[name](X).double().numpy(), values, err_msg=name)


def test_activations_of_other_libraries_permute_each_row():
    pytest.importorskip("deel.torchlip")
    made = activation_makers()
    theirs = [name for name in made if name.startswith(("deel", "orthogonium"))]
    assert theirs
    for name in theirs:
        row = torch.cat([X.relu(), (-X).relu()], 1) if name.endswith("doubling") else X
        np.testing.assert_array_equal(np.sort(made[name](X).numpy(), 1), np.sort(row.numpy(), 1))


def test_timed_activations_run():
    for function in timed_activations(6, 8):
        (grad,) = function.run()  # type: ignore[misc]
        assert grad.shape == (6, 8) and torch.isfinite(grad).all()


def test_both_implementations_of_bjorck_use_the_same_data():
    turns = {function.name: function.run() for function in timed_bjorck(6, (1, 3))}
    vectors = []
    for k in (1, 3):
        full, product = turns[f"full, {k}"], turns[f"products, {k}"]
        assert isinstance(full, torch.Tensor) and isinstance(product, torch.Tensor)
        assert np.linalg.norm(full.double().numpy(), 2) <= 1 + 1e-6
        vectors.append(np.linalg.solve(full.double().numpy(), product.double().numpy()))
    np.testing.assert_allclose(vectors[0], vectors[1], rtol=1e-3, atol=1e-4)


def test_a_missing_library_is_named_with_the_command_to_install_it(monkeypatch):
    monkeypatch.setattr(peer_imports, "PEERS", {"deel-torchlip": ("no.such.module", "torch")})
    assert peer_imports.explain_missing() == [
        "deel-torchlip: not installed (pip install 'src/taut_lab[peers]')"
    ]
    assert peer_imports.import_peer("no.such.module") is None


def test_missing_libraries_are_left_out(monkeypatch):
    monkeypatch.setattr("taut_lab.benchmarks.timed_layers.import_peer", lambda module: None)
    names = [*dense_makers(), *activation_makers()]
    assert PLAIN in names and RELU in names
    assert all(name.startswith(("taut", "torch")) for name in names)


def test_other_libraries_are_imported_without_output(tmp_path, monkeypatch, capfd):
    (tmp_path / "noisy_peer.py").write_text(
        "import sys, warnings\nprint('hello')\nprint('hello', file=sys.stderr)\n"
        "warnings.warn('hello')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert peer_imports.import_peer("noisy_peer") is not None
    assert capfd.readouterr() == ("", "")


def test_compiled_twins_take_the_same_steps():
    made = {network.function.name: network for network in networks(peers=False, compiled=True)}
    name = "taut OrthonormalLinear"
    assert {f"{PLAIN}, compiled", f"{name}, compiled"} < set(made)
    # Compilation itself is tested with each layer.
    with torch.compiler.set_stance("force_eager"):
        for _ in range(2):
            losses = [made[which].function.run() for which in (name, f"{name}, compiled")]
            assert losses[0] == losses[1]


def test_compiled_twins_of_convolutions_take_the_same_steps(monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    layers = conv_layers_in_training(
        (4, 4), 5, 3, kernel_size=3, peers=False, seed=0, compiled=True
    )
    made = {layer.function.name: layer for layer in layers}
    for name in (PLAIN_CONV, "taut AOLConv2d"):
        losses = [made[which].function.run() for which in (name, f"{name}, compiled")]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
