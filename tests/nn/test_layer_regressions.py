"""Ways in which a layer was once led astray, each kept as a test."""

import sys
import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import taut
from taut.errors import ArgumentError

KEPT = [
    taut.nn.OrthonormalLinear,
    taut.nn.ParsevalLinear,
    taut.nn.LinfLinear,
    taut.nn.L1Linear,
]


class Twice(nn.Module):
    def forward(self, w):
        return 2 * w


@pytest.mark.parametrize("kind", [*KEPT, taut.nn.SpectralLinear])
def test_a_parametrised_weight_is_constrained_too(kind):
    layer = kind(8, 8, bias=False)
    parametrize.register_parametrization(layer, "weight", Twice())
    for mode in (True, False, True):
        used = layer.train(mode)(torch.eye(8)).detach().mT.double()
        assert layer.input_norm.operator(used) <= 1 + 2e-6


@pytest.mark.parametrize("kind", KEPT)
def test_functional_call_does_not_write_into_the_caller_s_tensors(kind):
    layer = kind(8, 6)
    given = {name: 3 * p.detach() for name, p in layer.named_parameters()}
    before = {name: value.clone() for name, value in given.items()}
    torch.func.functional_call(layer, given, (torch.randn(3, 8),))
    assert all(torch.equal(before[name], given[name]) for name in given)


@pytest.mark.parametrize("kind", [*KEPT, taut.nn.SpectralLinear])
def test_layers_can_be_made_on_the_meta_device(kind):
    layer = kind(8, 6, device="meta").to_empty(device="cpu")
    layer.reset_parameters()
    assert layer.input_norm.operator(layer.effective_weight().detach().double()) <= 1 + 2e-6


def test_evaluation_does_not_hold_up_parseval_steps():
    def smallest(evaluates):
        torch.manual_seed(1)
        layer = taut.nn.ParsevalLinear(16, 16, bias=False, beta=0.1)
        with torch.no_grad():
            layer.weight.copy_(torch.diag(torch.linspace(0.2, 0.9, 16)))
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
        x = torch.randn(64, 16)
        for _ in range(30):
            layer.train()
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
            if evaluates:
                layer.eval()(x)
        return torch.linalg.svdvals(layer.train().effective_weight().detach()).min().item()

    assert smallest(True) == smallest(False) > 0.9


def test_threads_never_see_a_stale_weight():
    layer = taut.nn.LinfLinear(4, 4, bias=False).eval()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(200):
            with torch.no_grad():
                layer.weight.copy_(torch.diag(torch.full((4,), 0.1 if turn % 2 else 0.9)))
            wanted, seen = layer.weight.detach().clone().mT, []

            def look(seen=seen):
                with torch.no_grad():
                    seen.append(layer(torch.eye(4)))

            threads = [threading.Thread(target=look) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert all(torch.equal(output, wanted) for output in seen)
    finally:
        sys.setswitchinterval(interval)


def test_the_output_may_be_changed_in_place():
    net = nn.Sequential(taut.nn.OrthonormalLinear(8, 8, bias=False), nn.ReLU(inplace=True))
    net(torch.randn(4, 8)).sum().backward()


def test_an_exported_network_of_wild_weights_has_norm_at_most_one():
    layer = taut.nn.OrthonormalLinear(128, 128, bias=False, dtype=torch.float32).eval()
    with torch.no_grad():
        layer.weight.copy_(torch.randn(128, 128))
    exported = torch.export.export(layer, (torch.eye(128),)).module()
    assert torch.linalg.matrix_norm(exported(torch.eye(128)).double(), 2) <= 1


def test_unchanged_spectral_weights_are_not_proven_again(monkeypatch):
    layer = taut.nn.SpectralLinear(4, 4)
    layer(torch.randn(2, 4))
    monkeypatch.setattr("taut.nn.spectral.bound_spectral_norm", None)  # a call would fail
    layer(torch.randn(2, 4)).sum().backward()
    layer.eval()(torch.randn(2, 4))


layers: Any = taut.nn  # for calls that no type checker would let pass


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: layers.OrthonormalLinear(2, 2, "bjorck"), "`bias` must be True or False"),
        (lambda: layers.mlp([2, 8, 1], activation=torch.nn.ReLU), "lambda width: ReLU"),
        (lambda: layers.mlp([2, 8, 1], activation=layers.MaxMin()), "a name or a function"),
        (lambda: layers.mlp([2, 7, 1]), "MaxMin: `group_size` must divide"),
        (lambda: layers.mlp([2, 8, 1], lipschitz="2"), "`lipschitz` must be finite and positive"),
        (lambda: layers.Scale("2"), "`factor` must be finite"),
        (lambda: layers.MixedLinear(2, 2, 2), "`p` must be 'l1', 'l2' or 'linf'; got p=2"),
        (lambda: layers.MaxMin()(torch.tensor(1.0)), "must have channels"),
        (lambda: layers.Householder(2)(torch.ones(6)), "num_channels=2"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()
