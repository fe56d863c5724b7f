import hashlib
import io
import json
import pickle
import random
import zipfile
from typing import Any

import numpy as np
import pytest
import torch
from forging import BLANK, forge, linear_header, linear_model, linear_tensors, split
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import taut
from taut.errors import ArgumentError, DamagedFileError
from taut.export.architecture import build


def refusal(data: bytes, folder) -> str:
    path = folder / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError) as caught:
        taut.load(path)
    assert str(caught.value).startswith("load: bad.safetensors: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "net"
    taut.save(taut.nn.mlp([3, 4, 2], lipschitz=2.0), path, input_shape=(3,))
    return path.read_bytes()


def test_one_altered_byte_is_found_wherever_it_is(good, tmp_path):
    """Every other byte of the file, altered in a random way."""
    draw = random.Random(0)
    for at in range(0, len(good), 2):
        changed = good[at] ^ draw.randrange(1, 256)
        refusal(good[:at] + bytes([changed]) + good[at + 1 :], tmp_path)
    assert len(good) > 1000


def test_one_flipped_bit_is_found(good, tmp_path):
    draw = random.Random(1)
    for _ in range(300):
        at = draw.randrange(len(good))
        refusal(good[:at] + bytes([good[at] ^ 1 << draw.randrange(8)]) + good[at + 1 :], tmp_path)


def test_harmless_looking_changes_are_found(good, tmp_path):
    """Other white space, and digits of the checksum in capitals, mean the same to a parser."""
    size = int.from_bytes(good[:8], "little")
    header = good[8 : 8 + size]
    if header.endswith(b" "):
        refusal(good[:8] + header[:-1] + b"\t" + good[8 + size :], tmp_path)
    start = good.index(b"sha256") + len(b'sha256\\":\\"')
    digest = good[start : start + 64]
    assert len(bytes.fromhex(digest.decode())) == 32
    refusal(good.replace(digest, digest.upper()), tmp_path)


def test_truncated_and_lengthened_files(good, tmp_path):
    for length in (0, 1, 7, 8, 9, 100, len(good) // 2, len(good) - 1):
        message = refusal(good[:length], tmp_path)
        assert "truncated" in message
    assert "added to" in refusal(good + b"\0", tmp_path)


def test_the_checksum_is_named(good, tmp_path):
    at = len(good) - 3
    assert "the checksum does not match" in refusal(
        good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], tmp_path
    )


@pytest.fixture
def no_pickle(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pickle was opened")

    for name in ("load", "loads", "Unpickler", "_Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(torch, "load", refuse)


def test_loading_opens_no_pickle(good, tmp_path, no_pickle):
    (tmp_path / "net").write_bytes(good)
    assert isinstance(taut.load(tmp_path / "net"), nn.Sequential)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('code of the file was run')",))


def test_pickles_and_archives_are_refused_unopened(tmp_path, no_pickle):
    assert "Pickles can run any code" in refusal(pickle.dumps(Bomb()), tmp_path)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Bomb()))
    assert "Pickles can run any code" in refusal(buffer.getvalue(), tmp_path)
    refusal(pickle.dumps(Bomb(), protocol=0), tmp_path)
    hidden = {**linear_header(), "model": pickle.dumps(Bomb()).hex()}
    refusal(forge(hidden, linear_tensors()), tmp_path)


def test_other_safetensors_files_are_told_apart(tmp_path):
    assert "names no layers" in refusal(forge(None, linear_tensors()), tmp_path)
    assert "names no layers" in refusal(forge([], linear_tensors(), text="[1]"), tmp_path)


@pytest.mark.parametrize("version", [1, 0, "2", None, 2.5, 3])
def test_other_versions_are_refused(version, tmp_path):
    assert "format" in refusal(forge(linear_header(format=version), linear_tensors()), tmp_path)


def sequential(*children):
    return {"kind": "Sequential", "children": [list(child) for child in children]}


def nested(depth):
    model = linear_model()
    for _ in range(depth):
        model = sequential(("0", model))
    return model


def doubling(levels):
    """A few lines that mean 2^levels layers."""
    model = linear_model(in_features=2)
    for level in range(levels):
        inner = ".".join(["a"] * (levels - level))
        model = sequential(("a", model), ("b", {"kind": "same as", "path": inner}))
    return model


EVIL_MODELS = {
    "unknown kind": ({"kind": "Exec", "arguments": {}}, "unknown kind 'Exec'"),
    "dotted kind": ({"kind": "os.system", "arguments": {"command": "true"}}, "unknown kind"),
    "private kind": ({"kind": "_Builder", "arguments": {}}, "unknown kind"),
    "kind of torch that is not listed": ({"kind": "Embedding", "arguments": {}}, "unknown kind"),
    "not an object": ([1, 2], "is described by"),
    "null": (None, "is described by"),
    "an extra key": ({**linear_model(), "code": "1"}, "is described by"),
    "an extra argument": (linear_model(device="cuda"), "the arguments must be"),
    "negative size": (linear_model(in_features=-3), "`in_features` must be at least 1"),
    "zero size": (linear_model(out_features=0), "`out_features` must be at least 1"),
    "huge size": (
        linear_model(in_features=2**31),
        "`in_features` must be of type int and in range",
    ),
    "large size": (linear_model(in_features=2**30), "the layer needs shape"),
    "size of a float": (
        linear_model(in_features=3.0),
        "`in_features` must be of type int and in range",
    ),
    "size of a bool": (
        linear_model(in_features=True),
        "`in_features` must be of type int and in range",
    ),
    "size of a string": (
        linear_model(in_features="3"),
        "`in_features` must be of type int and in range",
    ),
    "size of a list": (
        linear_model(in_features=[3]),
        "`in_features` must be of type int and in range",
    ),
    "wrong shape": (linear_model(in_features=4), "has shape (2, 3)"),
    "transposed": (linear_model(in_features=2, out_features=3), "has shape (2, 3)"),
    "a tensor left over": (linear_model(bias=False), "tensor `bias` belongs to no layer"),
    "a tensor missing": (sequential(("0", linear_model())), "tensor `0.weight` is missing"),
    "a depth bomb": (nested(40), "nested at most 32 deep"),
    "too many layers": (
        sequential(*((str(i), {"kind": "Identity", "arguments": {}}) for i in range(1000))),
        "at most 1000 layers",
    ),
    "a child without a name": (sequential(("", linear_model())), "has a child"),
    "a child with a dot": (sequential(("a.b", linear_model())), "has a child"),
    "a child that hides a method": (sequential(("forward", linear_model())), "has a child"),
    "a child of the wrong type": ({"kind": "Sequential", "children": [3]}, "has a child"),
    "children that are a string": ({"kind": "Sequential", "children": "ab"}, "is described by"),
    "a repetition of nothing": (
        sequential(("0", {"kind": "same as", "path": "5"})),
        "which is not there",
    ),
    "a repetition of itself": (
        sequential(("0", sequential(("0", {"kind": "same as", "path": "0"})))),
        "which is not there",
    ),
    "a group of none": (
        {"kind": "GroupSort", "arguments": {"group_size": 0, "dim": -1}},
        "`group_size` must be a whole number >= 1",
    ),
    "an infinite factor": (
        {"kind": "Scale", "arguments": {"factor": 1e999}},
        "of type float and in range",
    ),
    "a factor that is no number": (
        {"kind": "Scale", "arguments": {"factor": float("nan")}},
        "of type float and in range",
    ),
    "a sure dropout": ({"kind": "Dropout", "arguments": {"p": 7.0}}, "dropout probability"),
    "an unknown method": (
        {
            "kind": "OrthonormalLinear",
            "arguments": {
                **linear_model()["arguments"],
                "method": "__class__",
                "order": 1,
                "num_steps": 3,
                "scaling": "gram",
            },
        },
        "`method` must be one of",
    ),
}


@pytest.mark.parametrize("name", EVIL_MODELS)
def test_evil_descriptions_are_refused(name, tmp_path):
    model, sentence = EVIL_MODELS[name]
    assert sentence in refusal(forge(linear_header(model=model), linear_tensors()), tmp_path)


def test_repetitions_of_repetitions_are_refused(tmp_path):
    square = {"a.weight": np.eye(2, dtype=np.float32), "a.bias": np.zeros(2, np.float32)}
    levels = 2
    tensors = {name.replace("a.", "a." * levels): value for name, value in square.items()}
    (tmp_path / "few").write_bytes(forge(linear_header(model=doubling(levels)), tensors))
    x = torch.randn(3, 2)
    torch.testing.assert_close(taut.load(tmp_path / "few")(x), x)
    levels = 30
    tensors = {name.replace("a.", "a." * levels): value for name, value in square.items()}
    message = refusal(forge(linear_header(model=doubling(levels)), tensors), tmp_path)
    assert "at most 1000 layers" in message


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"constant": 0.5}, "states a Lipschitz constant of 0.5, but only"),
        ({"constant": -1.0}, "the constant must be a number"),
        ({"constant": "1"}, "the constant must be a number"),
        ({"constant": float("inf")}, "the constant must be a number"),
        ({"constant": float("nan")}, "the constant must be a number"),
        ({"constant": None}, "the constant must be a number"),
        ({"norm": "l7"}, "`norm` must be"),
        ({"norm": ["l2"]}, "it does not hold a network"),
        ({"frozen": ["nothing"]}, "frozen parameter 'nothing' is not there"),
        ({"frozen": 3}, "it does not hold a network"),
        ({"input_shape": [4]}, "`input_shape` must be one that the model takes"),
        ({"input_shape": [10**12, 3]}, "`input_shape` must be positive whole numbers"),
        ({"input_shape": [-3]}, "`input_shape` must be positive whole numbers"),
        ({"input_shape": []}, "`input_shape` must be positive whole numbers"),
        ({"input_shape": "3"}, "`input_shape` must be positive whole numbers"),
        ({"versions": 3}, "it does not hold a network"),
    ],
    ids=str,
)
def test_evil_claims_are_refused(changes, sentence, tmp_path):
    assert sentence in refusal(forge(linear_header(**changes), linear_tensors()), tmp_path)


def test_missing_entries_are_refused(tmp_path):
    for key in linear_header():
        header = {k: v for k, v in linear_header().items() if k != key}
        if key != "method":
            refusal(forge(header, linear_tensors()), tmp_path)


def test_the_claim_is_proven_again_and_not_believed(tmp_path):
    """A tampered weight with a checksum that fits still has to keep the constant."""
    tensors = linear_tensors()
    norm = float(np.linalg.norm(tensors["weight"].astype(float), 2))
    (tmp_path / "true").write_bytes(forge(linear_header(constant=norm * (1 + 1e-9)), tensors))
    taut.load(tmp_path / "true")
    tensors["weight"] *= 1.0001
    message = refusal(forge(linear_header(constant=norm * (1 + 1e-9)), tensors), tmp_path)
    assert "is proven of the network in it" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(value, tmp_path):
    tensors = linear_tensors()
    tensors["bias"][1] = value
    assert "`bias` holds NaN or infinity" in refusal(forge(linear_header(), tensors), tmp_path)


def test_wrong_dtypes_are_refused(tmp_path):
    tensors = linear_tensors()
    whole = {name: value.astype(np.int64) for name, value in tensors.items()}
    assert "must be a float" in refusal(forge(linear_header(), whole), tmp_path)
    mixed = {**tensors, "bias": tensors["bias"].astype(np.float64)}
    assert "differ in dtype" in refusal(forge(linear_header(), mixed), tmp_path)


def test_headers_that_lie_are_refused(tmp_path):
    def headed(header: bytes, body: bytes = b"") -> bytes:
        return len(header).to_bytes(8, "little") + header + body

    stated = json.dumps(json.dumps(linear_header(model=sequential())))
    for header in (
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"' + b"x" * 50 + b'"',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"__metadata__": 3}',
        b'{"__metadata__": {"taut": 3}}',
        b'{"__metadata__": {"taut": "{"}}',
        b'{"__metadata__": {"taut": "' + b"[" * 100_000 + b'"}}',
        b'{"weight": 3}',
        b'{"weight": {"dtype": "F32", "shape": [1], "data_offsets": ["a", "b"]}}',
        b'{"weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, ' + b"9" * 5000 + b"]}}",
        b'{"__metadata__": {"taut": %s}, "w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}'
        % stated.encode(),
    ):
        refusal(headed(header), tmp_path)
    refusal((2**63).to_bytes(8, "little") + b"{}", tmp_path)
    twice = linear_header(versions={"sha256": BLANK})
    refusal(forge(twice, linear_tensors()), tmp_path)


def test_files_of_the_first_format_are_told_what_to_do(tmp_path):
    message = refusal(forge(linear_header(format=1), linear_tensors()), tmp_path)
    assert "its format is 1" in message and "save its network again" in message


def convolution(**changes):
    arguments = {
        "in_channels": 1,
        "out_channels": 4,
        "kernel_size": [3, 3],
        "stride": [1, 1],
        "dilation": [1, 1],
        "padding": "1 1",
        "padding_mode": "zeros",
        "groups": 1,
        "bias": False,
        **changes,
    }
    return {"kind": "Conv2d", "arguments": arguments}


class Counting(TorchDispatchMode):
    """Counts the entries of all tensors with storage that are made."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, torch.Tensor) and not value.is_meta:
                self.entries += value.numel()
        return result


def test_a_small_file_cannot_ask_for_large_tensors(tmp_path):
    """652 bytes once led to 1.7 GB: the shape of the input costs no bytes."""
    tensors = {"weight": np.ones((4, 1, 3, 3), np.float32)}
    data = forge(linear_header(model=convolution(), input_shape=[1, 2048, 2048]), tensors)
    assert len(data) < 1000
    with Counting() as counting:
        message = refusal(data, tmp_path)
    assert "`input_shape` must lead to at most" in message
    assert counting.entries < 10_000
    small = linear_header(model=convolution(), input_shape=[1, 16, 16], constant=40.0)
    (tmp_path / "small").write_bytes(forge(small, tensors))
    assert taut.load(tmp_path / "small")(torch.zeros(1, 1, 16, 16)).shape == (1, 4, 16, 16)


def repeated(layer, times):
    children = [
        ("0", layer),
        *((str(i), {"kind": "same as", "path": "0"}) for i in range(1, times)),
    ]
    return sequential(*children)


ASKING = {
    "repeated layers": (
        repeated(convolution(out_channels=1), 999),
        {"0.weight": np.ones((1, 1, 3, 3), np.float32)},
        [1, 512, 512],
    ),
    "a padding": (
        convolution(padding="1000000 1000000", stride=[1000, 1000]),
        {"weight": np.ones((4, 1, 3, 3), np.float32)},
        [1, 8, 8],
    ),
    "padding of a padding layer": (
        {"kind": "ZeroPad2d", "arguments": {"padding": [0, 100000, 0, 100000]}},
        {},
        [1, 8, 8],
    ),
    "upsampling": (
        {
            "kind": "ConvTranspose2d",
            "arguments": {
                **convolution(out_channels=1, stride=[1024, 1024])["arguments"],
                "output_padding": [0, 0],
            },
        },
        {"weight": np.ones((1, 1, 3, 3), np.float32)},
        [1, 64, 64],
    ),
    "a window of pooling": (
        {
            "kind": "L2Pool2d",
            "arguments": {
                "kernel_size": [2**30, 1],
                "stride": [1, 1],
                "ceil_mode": False,
            },
        },
        {},
        None,
    ),
    "a window of pooling that sticks out": (
        {
            "kind": "L2Pool2d",
            "arguments": {"kernel_size": [1000, 1], "stride": [1000, 1], "ceil_mode": True},
        },
        {},
        None,
    ),
    "a long kernel": (
        convolution(out_channels=1, kernel_size=[1, 10000], padding="0 0"),
        {"weight": np.ones((1, 1, 1, 10000), np.float32)},
        None,
    ),
    "phases": (
        convolution(
            out_channels=1,
            kernel_size=[1, 1024],
            stride=[1, 1023],
            dilation=[1, 1024],
            padding="0 0",
        ),
        {"weight": np.ones((1, 1, 1, 1024), np.float32)},
        None,
    ),
    "rows": (linear_model(), linear_tensors(), [3000000, 3]),
}


@pytest.mark.parametrize("name", ASKING)
def test_numbers_that_cost_no_bytes_have_limits(name, tmp_path):
    model, tensors, shape = ASKING[name]
    with Counting() as counting:
        message = refusal(
            forge(linear_header(model=model, input_shape=shape, constant=1e9), tensors), tmp_path
        )
    assert "must" in message and ("at most" in message or "more than" in message)
    assert counting.entries < 100_000


@pytest.mark.parametrize(("argument", "value"), [("order", 2**31 - 1), ("num_steps", 2**31 - 1)])
def test_iterations_have_limits(argument, value, tmp_path):
    arguments = {"method": "bjorck", "order": 1, "num_steps": 3, "scaling": "gram", argument: value}
    model = {
        "kind": "OrthonormalLinear",
        "arguments": {**linear_model()["arguments"], **arguments},
    }
    message = refusal(forge(linear_header(model=model), linear_tensors()), tmp_path)
    assert f"`{argument}` of OrthonormalLinear must be at most" in message
    layer = taut.nn.OrthonormalLinear(3, 2, method="bjorck", **{argument: value})
    with pytest.raises(ArgumentError, match="save: `"):
        taut.save(layer, tmp_path / "x")


def test_the_digest_of_the_caller_decides(good, tmp_path):
    path = tmp_path / "net"
    path.write_bytes(good)
    digest = hashlib.sha256(good).hexdigest()
    assert isinstance(taut.load(path, sha256=digest.upper()), nn.Sequential)
    with pytest.raises(DamagedFileError, match="not the `sha256` given"):
        taut.load(path, sha256="0" * 64)


def test_a_layer_must_evaluate_to_the_weight_that_is_stored(tmp_path):
    """The checker proves the stored weight; `load` sees to it that it is the one that runs."""
    path = tmp_path / "net"
    model: Any = taut.nn.mlp([3, 4, 2], constraint="bjorck")
    with torch.no_grad():
        model[0].weight.mul_(3)
    taut.save(model, path)
    header, tensors = split(path.read_bytes())
    (name, *_) = (name for name in tensors if name.startswith("evaluation:"))
    (tmp_path / "same").write_bytes(forge({**header, "sha256": BLANK}, tensors))
    taut.load(tmp_path / "same")
    smaller = {**tensors, name: tensors[name] * np.float32(0.5)}
    assert "does not evaluate to the weight" in refusal(
        forge({**header, "sha256": BLANK}, smaller), tmp_path
    )
    without = {key: value for key, value in tensors.items() if key != name}
    refusal(forge({**header, "sha256": BLANK}, without), tmp_path)
    more = {**tensors, "evaluation:1": tensors[name]}
    assert "`evaluation:1` belongs to no layer" in refusal(
        forge({**header, "sha256": BLANK}, more), tmp_path
    )


def test_arguments_that_torch_asserts_about_are_an_error_of_the_file():
    description = {"kind": "Hardtanh", "arguments": {"min_val": 5.0, "max_val": -5.0}}
    with pytest.raises(ArgumentError, match=r"`model` \(Hardtanh\)"):
        build(description, {})
