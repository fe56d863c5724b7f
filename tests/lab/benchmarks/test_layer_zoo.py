"""The zoo: its networks, its equal budget, its records and its table."""

import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

import taut
from taut.data import load_labelled
from taut.errors import ArgumentError, DamagedFileError, NoRuleError
from taut_lab.benchmarks import layer_zoo
from taut_lab.benchmarks.layer_zoo import ZooRecord, ZooSettings, read_zoo, run_zoo
from taut_lab.benchmarks.zoo_layers import UNCONSTRAINED, plain_network, zoo_blocks, zoo_network
from taut_lab.cli.zoo_output import draw_zoo, print_zoo, summary

OURS = [name for name in zoo_blocks(peers=False) if name != UNCONSTRAINED]
THEIRS = [name for name in zoo_blocks() if name not in zoo_blocks(peers=False)]
SMALL = ZooSettings(data="mnist", minutes=1e-3, rates=(1e-3, 3e-3), batch=16, depth=1, channels=8)


def trained(name: str, steps: int = 3) -> nn.Sequential:
    """A small network with that block after some steps, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = zoo_network(zoo_blocks()[name], (1, 16, 16), 10, channels=8, depth=1)
        x = torch.rand(8, 1, 16, 16)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    for _ in range(steps):
        optimiser.zero_grad()
        network(x).square().mean().backward()
        optimiser.step()
    return network.eval()


@pytest.mark.parametrize("name", OURS)
def test_a_network_of_our_blocks_has_a_proven_constant_of_at_most_1(name: str) -> None:
    network = trained(name)
    assert all(
        a is b or isinstance(a, nn.Sequential)
        for a, b in zip(network, plain_network(network), strict=True)
    )
    assert taut.bound_lipschitz(network, input_shape=(1, 16, 16)).value <= 1


@pytest.mark.parametrize("name", THEIRS)
def test_the_plain_network_of_a_peer_computes_the_same_and_bounds_its_slope(name: str) -> None:
    network = trained(name)
    plain = plain_network(network).eval()
    x = torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(plain(x), network(x), rtol=1e-4, atol=1e-5)
    slope = jacobian(network, x[:1])
    assert isinstance(slope, torch.Tensor)
    largest = torch.linalg.matrix_norm(slope.reshape(10, 256).double(), 2).item()
    bound = taut.bound_lipschitz(plain, input_shape=(1, 16, 16)).value
    assert largest <= bound * (1 + 1e-4)


def use_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_zoo, "load_dataset", lambda name, folder: load_labelled("digits"))


def test_a_run_records_each_layer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_digits(monkeypatch)
    seen: list[str] = []
    for _ in range(2):
        records = run_zoo(
            SMALL, tmp_path, peers=False, layers=["sll", "shift"], on_layer=seen.append
        )
    assert seen == ["taut SLLResidual2d", "taut shift_rotate (LipNeXt)"]
    assert sorted(record.layer for record in records) == seen
    for record in records:
        assert record.lipschitz is not None and record.lipschitz <= 1
        assert record.certified is not None
        assert record.steps >= 1 and record.fit_cpu >= 60 * SMALL.minutes
        assert record.trials[f"{record.rate:g}"] == min(record.trials.values())
        assert record.memory > 16 * record.parameters
    with pytest.raises(ArgumentError, match="must hold records with the settings"):
        run_zoo(replace(SMALL, seed=1), tmp_path, peers=False)
    with pytest.raises(ArgumentError, match="must be names, or parts of names"):
        run_zoo(SMALL, tmp_path, layers=["no such layer"])


def test_without_a_rule_the_constant_is_called_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NoRuleError(rule="no rule")

    use_digits(monkeypatch)
    monkeypatch.setattr(layer_zoo, "certify", refuse)
    (record,) = run_zoo(SMALL, tmp_path, layers=[UNCONSTRAINED])
    assert record.certified is None and record.lipschitz is None and 0 <= record.clean <= 1
    assert "not proven" in summary(record)


def record(layer: str, certified: float | None, clean: float) -> ZooRecord:
    return ZooRecord(
        layer=layer,
        settings=asdict(ZooSettings(minutes=2)),
        clean=clean,
        certified=certified,
        lipschitz=None if certified is None else 1.0,
        rate=1e-3,
        trials={"0.001": 1.0},
        steps=100,
        fit_cpu=12.5,
        epochs=1.0,
        parameters=10,
        memory=5_000_000,
        training_loss=1.0,
        cpu=20.0,
        wall=40.0,
    )


def test_records_are_read_best_first_and_other_files_refused(tmp_path: Path) -> None:
    records = [record("taut A", 0.25, 0.5), record("deel-torchlip B", None, 0.6)]
    records.append(record("orthogonium C", 0.5, 0.55))
    for index, one in enumerate(records):
        one.write(tmp_path / f"{index}.json")
    found = read_zoo(tmp_path)
    assert [one.layer for one in found] == ["orthogonium C", "taut A", "deel-torchlip B"]
    assert found[0].step_cpu == 0.125
    (tmp_path / "3.json").write_text('{"format": 1, "kind": "another"}')
    with pytest.raises(DamagedFileError, match="another"):
        read_zoo(tmp_path)


def test_the_table_and_the_chart_name_the_budget_and_the_part_of_the_data(capsys) -> None:
    records = [record("taut A", 0.25, 0.5), record("deel-torchlip B", None, 0.6)]
    print_zoo(records)
    text = capsys.readouterr().out
    for part in ("25.0 %", "not proven", "125", "25,000-image part", "36/255", "2 minutes"):
        assert part in text
    figure = draw_zoo(records)
    assert "taut A 25.0 %" in figure.alt and figure.render("svg").startswith(b"<?xml")


def test_the_loss_asks_for_twice_the_margin_of_the_radius() -> None:
    loss = ZooSettings().loss
    assert loss.offset == pytest.approx(2 * math.sqrt(2) * 36 / 255)
    assert loss.temperature * loss.offset == pytest.approx(1.6)
