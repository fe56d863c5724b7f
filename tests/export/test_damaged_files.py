import io
import json
import pickle
import random
import zipfile

import numpy as np
import pytest
import torch
from forging import BLANK, forge, linear_model, linear_story, linear_tensors
from torch import nn

import taut
from taut.errors import DamagedFileError


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
    hidden = {**linear_story(), "model": pickle.dumps(Bomb()).hex()}
    refusal(forge(hidden, linear_tensors()), tmp_path)


def test_other_safetensors_files_are_told_apart(tmp_path):
    assert "names no layers" in refusal(forge(None, linear_tensors()), tmp_path)
    assert "names no layers" in refusal(forge([], linear_tensors(), text="[1]"), tmp_path)


@pytest.mark.parametrize("version", [2, 0, "1", None, 1.5])
def test_other_versions_are_refused(version, tmp_path):
    assert "format" in refusal(forge(linear_story(format=version), linear_tensors()), tmp_path)


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
    "huge size": (linear_model(in_features=2**31), "`in_features` must be a usual int"),
    "large size": (linear_model(in_features=2**30), "the layer needs shape"),
    "size of a float": (linear_model(in_features=3.0), "`in_features` must be a usual int"),
    "size of a bool": (linear_model(in_features=True), "`in_features` must be a usual int"),
    "size of a string": (linear_model(in_features="3"), "`in_features` must be a usual int"),
    "size of a list": (linear_model(in_features=[3]), "`in_features` must be a usual int"),
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
    "an infinite factor": ({"kind": "Scale", "arguments": {"factor": 1e999}}, "a usual float"),
    "a factor that is no number": (
        {"kind": "Scale", "arguments": {"factor": float("nan")}},
        "a usual float",
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
    assert sentence in refusal(forge(linear_story(model=model), linear_tensors()), tmp_path)


def test_repetitions_of_repetitions_are_refused(tmp_path):
    square = {"a.weight": np.eye(2, dtype=np.float32), "a.bias": np.zeros(2, np.float32)}
    levels = 2
    tensors = {name.replace("a.", "a." * levels): value for name, value in square.items()}
    (tmp_path / "few").write_bytes(forge(linear_story(model=doubling(levels)), tensors))
    x = torch.randn(3, 2)
    torch.testing.assert_close(taut.load(tmp_path / "few")(x), x)
    levels = 30
    tensors = {name.replace("a.", "a." * levels): value for name, value in square.items()}
    message = refusal(forge(linear_story(model=doubling(levels)), tensors), tmp_path)
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
    assert sentence in refusal(forge(linear_story(**changes), linear_tensors()), tmp_path)


def test_missing_entries_are_refused(tmp_path):
    for key in linear_story():
        story = {k: v for k, v in linear_story().items() if k != key}
        if key != "method":
            refusal(forge(story, linear_tensors()), tmp_path)


def test_the_claim_is_proven_again_and_not_believed(tmp_path):
    """A tampered weight with a checksum that fits still has to keep the constant."""
    tensors = linear_tensors()
    norm = float(np.linalg.norm(tensors["weight"].astype(float), 2))
    (tmp_path / "true").write_bytes(forge(linear_story(constant=norm * (1 + 1e-9)), tensors))
    taut.load(tmp_path / "true")
    tensors["weight"] *= 1.0001
    message = refusal(forge(linear_story(constant=norm * (1 + 1e-9)), tensors), tmp_path)
    assert "is proven of the network in it" in message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(value, tmp_path):
    tensors = linear_tensors()
    tensors["bias"][1] = value
    assert "`bias` holds NaN or infinity" in refusal(forge(linear_story(), tensors), tmp_path)


def test_wrong_dtypes_are_refused(tmp_path):
    tensors = linear_tensors()
    whole = {name: value.astype(np.int64) for name, value in tensors.items()}
    assert "must be a float" in refusal(forge(linear_story(), whole), tmp_path)
    mixed = {**tensors, "bias": tensors["bias"].astype(np.float64)}
    assert "differ in dtype" in refusal(forge(linear_story(), mixed), tmp_path)


def test_headers_that_lie_are_refused(tmp_path):
    def headed(header: bytes, body: bytes = b"") -> bytes:
        return len(header).to_bytes(8, "little") + header + body

    story = json.dumps(json.dumps(linear_story(model=sequential())))
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
        % story.encode(),
    ):
        refusal(headed(header), tmp_path)
    refusal((2**63).to_bytes(8, "little") + b"{}", tmp_path)
    twice = linear_story(versions={"sha256": BLANK})
    refusal(forge(twice, linear_tensors()), tmp_path)
