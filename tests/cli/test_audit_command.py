import json
from functools import partial

import pytest
import torch
from torch import nn

import taut
from support import invoke


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


run = partial(invoke, "audit")


def test_a_proven_network(folder):
    bound = taut.save(taut.nn.mlp([3, 8, 2], lipschitz=4.0), "net.safetensors")
    result = run("net.safetensors", code=0)
    for text in ("layer", "OrthonormalLinear", "MaxMin", "permutation", "proven"):
        assert text in result.output
    printed = result.output.split("Lipschitz constant <= ")[1].split(" (l2)")[0]
    assert bound.value <= float(printed) <= bound.value * (1 + 1e-5)


def test_at_most_decides_the_exit_status():
    taut.save(taut.nn.mlp([3, 8, 2], lipschitz=4.0), "net.safetensors")
    run("net.safetensors", "--at-most", "4", code=0)
    result = run("net.safetensors", "--at-most", "3.9", code=1)
    assert "refused: above 3.9, the largest allowed constant" in result.output


def test_json_is_one_object_with_the_exact_constant():
    model = taut.nn.mlp([3, 8, 2], constraint="linf")
    taut.save(model, "net.safetensors")
    result = run("net.safetensors", "--json", "--norm", "l1", "--at-most", "0", code=1)
    record = json.loads(result.output)
    assert record["verdict"] == "refused"
    assert record["constant"] == taut.bound_lipschitz(model, "l1").value
    assert [layer["kind"] for layer in record["layers"]] == ["LinfLinear", "MaxMin", "LinfLinear"]
    record = json.loads(run("net.safetensors", "--json").output)
    assert (record["verdict"], record["norm"], record["reason"]) == ("proven", "linf", None)
    assert record["constant"] <= 1
    assert record["written_by"]["torch"] == torch.__version__


def test_norms_that_differ_are_named():
    model = nn.Sequential(taut.nn.MixedLinear(3, 8, "l2"), taut.nn.LinfLinear(8, 2))
    taut.save(model, "net.safetensors")
    assert "(l2 to linf)" in run("net.safetensors").output


def test_no_rule_is_a_refusal_with_its_reason():
    model = nn.Sequential(taut.nn.OrthonormalLinear(4, 4), taut.nn.FullSort(dim=-2))
    taut.save(model, "net.safetensors", input_shape=(6, 4))
    run("net.safetensors", code=0)
    result = run("net.safetensors", "--input-shape", "4", code=1)
    assert result.output.startswith("refused: nothing is proven at `1`")
    assert result.output.count("\n") == 1
    record = json.loads(run("net.safetensors", "--input-shape", "4", "--json").output)
    assert record["constant"] is None and "mixes the samples" in record["reason"]


def test_damaged_and_foreign_files_are_one_line(folder):
    taut.save(taut.nn.mlp([3, 8, 2]), "net.safetensors")
    data = bytearray((folder / "net.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "net.safetensors").write_bytes(data)
    result = run("net.safetensors", code=2)
    assert result.stderr.startswith("taut audit: net.safetensors: the checksum does not match")
    assert result.stderr.count("\n") == 1
    (folder / "net.pt2").write_bytes(b"PK")
    result = run("net.pt2", code=2)
    assert "which does not list its layers" in result.stderr
    run("nothing.safetensors", code=2)


@pytest.mark.parametrize("shape", ["", "a", "1,,2", "-3", "0", "1.5", "3,"])
def test_shapes_are_whole_numbers(shape):
    taut.save(taut.nn.mlp([3, 8, 2]), "net.safetensors")
    result = run("net.safetensors", "--input-shape", shape, code=2)
    assert "such as 784 or 1,28,28" in result.stderr
