import copy
import json
import os
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from forging import forge, linear_header, linear_tensors
from test_folding import dtypes, snapshot, wild
from torch import nn

import taut
import taut.export.saved_model
from cases import ACTIVATIONS, DENSE
from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.export import open_file


def read_header(path) -> dict[str, Any]:
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["taut"])


def round_trip(model, folder, **kwargs) -> Any:
    before = snapshot(model)
    bound = taut.save(model, folder / "model.safetensors", **kwargs)
    assert snapshot(model) == before
    assert os.listdir(folder) == ["model.safetensors"]
    loaded = taut.load(folder / "model.safetensors")
    assert not any(module.training for module in loaded.modules())
    assert read_header(folder / "model.safetensors")["constant"] == bound.value
    return loaded


def assert_same_function(loaded, model, x):
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        wanted, got = model(x), loaded(x)
    assert got.dtype == wanted.dtype
    assert (got - wanted).abs().max() <= 1e-6 * wanted.abs().max()


@pytest.mark.parametrize("case", DENSE, ids=str)
@pytest.mark.parametrize("fold", [False, True])
@dtypes
def test_every_dense_layer_returns(case, dtype, fold, tmp_path):
    model = wild(case.make(5, 7, dtype=dtype, bias=not fold))
    model.requires_grad_(True)
    loaded = round_trip(model, tmp_path, fold=fold)
    assert type(loaded) is (nn.Linear if fold else case.layer)
    assert repr(loaded) == repr(taut.fold(model) if fold else model)
    assert_same_function(loaded, model, torch.randn(9, 5, dtype=dtype))
    if not fold:
        for name, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], value)


@pytest.mark.parametrize("case", ACTIVATIONS, ids=str)
@dtypes
def test_every_activation_returns(case, dtype, tmp_path):
    width = 2 * max(2, case.group)
    model = nn.Sequential(taut.nn.OrthonormalLinear(4, width), case.make(width)).to(dtype)
    loaded = round_trip(model, tmp_path)
    assert type(loaded[1]) is case.layer
    assert repr(loaded) == repr(model)
    x = torch.randn(20, 4, dtype=dtype)
    assert_same_function(loaded, model, x)


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(),
        nn.LeakyReLU(0.2),
        nn.ELU(0.5),
        nn.Softplus(2.0, 50.0),
        nn.Hardtanh(-2.0, 0.5),
        nn.GELU("tanh"),
        nn.SiLU(),
        nn.Tanh(),
        nn.Sigmoid(),
        nn.Identity(),
        nn.Dropout(0.25),
        nn.Flatten(1, 2),
        taut.nn.Householder(4, 0.3, learnable=False),
    ],
    ids=repr,
)
def test_the_usual_layers_return(activation, tmp_path):
    model = nn.Sequential(taut.nn.LinfLinear(3, 4), activation)
    shape = (2, 3) if isinstance(activation, nn.Flatten) else (3,)
    loaded = round_trip(model, tmp_path, input_shape=shape)
    assert repr(loaded) == repr(model)
    assert_same_function(loaded, model, torch.randn(6, *shape))


@pytest.mark.parametrize("constraint", ["orthonormal", "bjorck", "spectral", "parseval", "linf"])
def test_training_goes_on_after_loading(constraint, tmp_path):
    """The same steps from the same state end at the same numbers."""
    model = taut.nn.mlp([3, 8, 8, 1], constraint=constraint, lipschitz=2.0)
    x = torch.randn(32, 3)

    def train(net: nn.Module) -> torch.Tensor:
        net.train()
        optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(3):
            optimiser.zero_grad()
            (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimiser.step()
        return net.eval()(x).detach()

    train(model)
    loaded = round_trip(model, tmp_path)
    assert torch.equal(train(loaded), train(model))


def test_folded_files_hold_torch_layers_that_ask_for_no_gradients(tmp_path):
    model = taut.nn.mlp([3, 8, 1])
    loaded = round_trip(model, tmp_path, fold=True)
    assert [type(m).__name__ for m in loaded] == ["Linear", "MaxMin", "Linear"]
    assert not any(value.requires_grad for value in loaded.parameters())
    model[0].weight.requires_grad_(False)
    loaded = round_trip(model, tmp_path)
    assert [value.requires_grad for value in loaded.parameters()] == [False, True, True, True]


def test_nesting_names_and_shared_layers_return(tmp_path):
    shared = taut.nn.OrthonormalLinear(4, 4)
    block = nn.Sequential(shared, taut.nn.MaxMin())
    model = nn.Sequential()
    model.add_module("entry", block)
    model.add_module("again", block)
    model.add_module("deep", nn.Sequential(nn.Sequential(shared), nn.Identity()))
    loaded = round_trip(model, tmp_path)
    assert repr(loaded) == repr(model)
    assert loaded.entry is loaded.again and loaded.deep[0][0] is loaded.entry[0]
    assert list(loaded.state_dict()) == list(model.state_dict())
    assert_same_function(loaded, model, torch.randn(5, 4))


def test_a_file_states_what_is_proven(tmp_path):
    path = tmp_path / "net.safetensors"
    model = taut.nn.mlp([3, 8, 2], lipschitz=5.0)
    bound = taut.save(model, path)
    header = read_header(path)
    assert header["norm"] == header["output_norm"] == "l2"
    assert bound.value <= 5
    assert header["versions"]["torch"] == torch.__version__
    saved = open_file(path)
    assert saved.bound.value == pytest.approx(bound.value, rel=1e-12)
    assert saved.claimed == bound.value
    assert sorted(safetensors.torch.load_file(path)) == ["0.bias", "0.weight", "3.bias", "3.weight"]


def test_norms_are_those_of_the_layers_unless_given(tmp_path):
    path = tmp_path / "net.safetensors"
    mixed = nn.Sequential(taut.nn.MixedLinear(3, 8, "l2"), taut.nn.LinfLinear(8, 2))
    assert taut.save(mixed, path).value <= 1
    header = read_header(path)
    assert (header["norm"], header["output_norm"]) == ("l2", "linf")
    taut.save(mixed, path, norm="linf")
    header = read_header(path)
    assert (header["norm"], header["output_norm"]) == ("linf", "linf")
    taut.save(nn.Linear(2, 2), path, norm="l1", output_norm="l2")
    header = read_header(path)
    assert (header["norm"], header["output_norm"]) == ("l1", "l2")


def test_equal_networks_make_equal_files(tmp_path):
    model = taut.nn.mlp([3, 8, 2])
    for name in ("a", "b"):
        taut.save(copy.deepcopy(model), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_random_numbers_are_left_alone(tmp_path):
    model = taut.nn.mlp([3, 8, 2], activation="householder")
    state = torch.get_rng_state()
    taut.save(model, tmp_path / "a")
    taut.load(tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), state)


def test_the_format_is_what_its_description_says(tmp_path):
    """A file written by hand is read, and one written by taut has the checksum of the recipe."""
    tensors = linear_tensors()
    (tmp_path / "hand").write_bytes(forge(linear_header(), tensors))
    loaded: Any = taut.load(tmp_path / "hand")
    assert torch.equal(loaded.weight, torch.from_numpy(tensors["weight"]))
    taut.save(loaded, tmp_path / "taut")
    header = read_header(tmp_path / "taut")
    ours = {n: t.numpy() for n, t in safetensors.torch.load_file(tmp_path / "taut").items()}
    again = forge({**header, "sha256": "0" * 64}, ours)
    (tmp_path / "again").write_bytes(again)
    assert torch.equal(taut.load(tmp_path / "again").state_dict()["bias"], loaded.bias)


@pytest.mark.parametrize("size", [0x480, 0x4B50])
def test_a_header_whose_length_looks_like_a_pickle_or_an_archive_is_read(size, tmp_path):
    short = forge(linear_header(), linear_tensors())
    padding = size - int.from_bytes(short[:8], "little")
    data = forge(linear_header(method="by hand" + " " * padding), linear_tensors())
    assert data[:1] == b"\x80" or data[:2] == b"PK"
    (tmp_path / "net").write_bytes(data)
    assert isinstance(taut.load(tmp_path / "net"), nn.Linear)


class Custom(nn.Module):
    def forward(self, x):
        return x


class Cunning(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (Custom(), "save: `1.0` (Custom) must be a Sequential or a layer"),
        (Cunning(3, 3), "save: `1.0` (Cunning) must be a Sequential"),
        (
            nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
            "for parametrised layers, use fold",
        ),
        (nn.ModuleList([nn.ReLU()]), "save: `1.0` (ModuleList) must be a Sequential"),
    ],
)
def test_what_no_file_can_describe_is_refused_by_name(module, sentence, tmp_path):
    model = nn.Sequential(taut.nn.OrthonormalLinear(3, 3), nn.Sequential(module))
    with pytest.raises(ArgumentError) as caught:
        taut.save(model, tmp_path / "x")
    assert sentence in str(caught.value)
    assert "state_dict" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_hooks_ties_and_broken_numbers_are_refused(tmp_path):
    model = taut.nn.mlp([3, 4, 1])
    handle = model[1].register_forward_hook(lambda *_: None)
    with pytest.raises(ArgumentError, match="save: `1` .MaxMin. has forward hooks"):
        taut.save(model, tmp_path / "x")
    handle.remove()
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(ArgumentError, match="`0.weight` and `1.weight` are one tensor"):
        taut.save(tied, tmp_path / "x")
    broken = nn.Linear(3, 3)
    nn.init.constant_(broken.bias, torch.inf)
    with pytest.raises(NonFiniteError, match="`bias` holds NaN or infinity"):
        taut.save(broken, tmp_path / "x")
    cut = nn.Linear(3, 3)
    cut.weight.data = cut.weight.data[:2]
    with pytest.raises(ArgumentError, match="cannot be described: it holds"):
        taut.save(cut, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_no_proof_no_file(tmp_path):
    model = nn.Sequential(taut.nn.OrthonormalLinear(4, 4), taut.nn.FullSort(dim=0))
    with pytest.raises(NoRuleError):
        taut.save(model, tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "net"
    taut.save(taut.nn.mlp([2, 4, 1]), path)
    old = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(taut.export.saved_model.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        taut.save(taut.nn.mlp([3, 4, 1]), path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["net"]


def test_a_missing_file_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        taut.load(tmp_path / "nothing")
