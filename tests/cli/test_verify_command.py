import hashlib
import json
from functools import partial

import pytest

import taut
from export.forging import BLANK, forge, split
from support import invoke


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "net.safetensors"
    taut.save(taut.nn.mlp([3, 8, 2], lipschitz=4.0), path)
    return path


run = partial(invoke, "verify")


def test_a_saved_network_is_proven(network):
    result = run(network, code=0)
    assert result.output.startswith("proven: Lipschitz constant <= 3.999")
    assert "(l2 to l2)" in result.output


def test_one_json_object_agrees_with_audit(network):
    digest = hashlib.sha256(network.read_bytes()).hexdigest()
    found = json.loads(run(network, "--json", "--sha256", digest.upper()).output)
    audited = json.loads(invoke("audit", network, "--json").output)
    assert found["verdict"] == "proven" and found["sha256"] == digest
    assert found["constant"] == pytest.approx(audited["constant"], rel=1e-9)


def test_another_digest_is_refused(network):
    result = run(network, "--sha256", "0" * 64, code=1)
    assert result.output.startswith("refused: net.safetensors: its SHA-256 is ")


def test_a_claim_that_is_too_low_is_refused(network):
    header, tensors = split(network.read_bytes())
    header |= {"constant": header["constant"] * (1 - 1e-9), "sha256": BLANK}
    network.write_bytes(forge(header, tensors))
    result = run(network, "--json", code=1)
    assert "is proven" in json.loads(result.output)["reason"]


def test_a_missing_file_is_a_usage_error():
    run("nothing", code=2)
