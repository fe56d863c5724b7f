"""`taut train` on digits with a tiny network: what it writes, says, resumes and refuses."""

import json
import math
import shutil
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import click
import pytest
import torch

from support import invoke, seeded
from taut.cli.train import configure, train
from taut.data import load_labelled
from taut.losses import margin_for_radius
from taut.training import RunFolder, TrainConfig, from_toml, load_run, resolve
from taut.training.architectures import build_network

TINY = ("--hidden", "16", "--epochs", "2", "--batch-size", "256")


run = partial(invoke, "train")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("train") / "a"
    run(*TINY, "--radius", "0.3", "--out", str(out), code=0)
    return out


def test_a_run_is_written_with_its_page(folder):
    found = load_run(folder)
    assert found.config.hidden == (16,) and found.config.radius == 0.3
    assert found.config.data == "digits" and found.config.threads == 1
    html = (folder / "index.html").read_text()
    certified = math.floor(1000 * found.result["certified"]) / 10
    for words in (
        f"{100 * found.result['clean']:.1f} % clean accuracy",
        f"{certified:.1f} % certified within L2 radius 0.3",
        "Images and certified radii",
        "Input gradients",
        "Gradient norms",
        "Guarantees",
    ):
        assert words in html
    assert "Certified accuracy and attacks" not in html


def test_the_same_command_again_trains_nothing_and_keeps_the_page(folder):
    weights = (folder / "model.safetensors").read_bytes()
    page = folder / "index.html"
    before = page.read_text()
    page.write_text("attacks were added")
    result = run(*TINY, "--radius", "0.3", "--out", str(folder), code=0)
    assert "already finished" in result.output
    assert page.read_text() == "attacks were added"
    assert (folder / "model.safetensors").read_bytes() == weights
    page.write_text(before)


def test_another_configuration_is_refused_in_one_line(folder):
    result = run(*TINY, "--radius", "0.4", "--out", str(folder), code=2)
    assert "another radius (there 0.3, now 0.4)" in result.stderr
    assert "Traceback" not in result.output


def test_options_override_the_file_and_json_is_all_that_is_said(folder, tmp_path):
    config = str(folder / "config.toml")
    out = str(tmp_path / "b")
    result = run("--config", config, "--seed", "7", "--no-report", "--json", "--out", out, code=0)
    record = json.loads(result.stdout)
    first = load_run(folder)
    assert record["config"] == {**first.config.to_dict(), "seed": 7}
    assert record["report"] is None and not Path(out, "index.html").exists()
    assert record["clean"] == load_run(out).result["clean"]
    assert record["lipschitz"] <= 1


def test_the_default_folder_names_data_and_norm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(
        "--hidden", "8", "--epochs", "1", "--norm", "linf", "--no-report", "--json", code=0
    )
    assert json.loads(result.stdout)["run"] == "runs/digits-linf"


@pytest.mark.slow
def test_a_table_has_radii_in_deviations(tmp_path):
    x = torch.randn(120, 2, generator=seeded()) * torch.tensor([1.0, 100.0])
    lines = [f"{a:.4f},{b:.4f},{'up' if a > 0 else 'down'}" for a, b in x.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,kind", *lines]))
    out = tmp_path / "t"
    run(
        "--data", str(tmp_path / "t.csv"), "--label", "kind", "--hidden", "8", "--epochs", "3",
        "--out", str(out), code=0,
    )  # fmt: skip
    html = (out / "index.html").read_text()
    assert "Certified radii" in html and "Images and certified radii" not in html
    assert "in standard deviations of each column" in html
    assert ">up</th>" in html


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--data", "mnits"), "Did you mean 'mnist'"),
        (("--hidden", "a"), "must be a list of layer widths, positive whole numbers"),
        (("--milestones", "x"), "must be a list of epochs, positive whole numbers"),
        (("--lr", "nan"), "must be a finite number; got 'nan'"),
        (("--norm", "l1", "--adversarial-radius", "0.1"), "which PGD does not support"),
    ],
)
def test_mistakes_are_one_line(args, words, tmp_path):
    result = run(*args, "--out", str(tmp_path / "x"), code=2)
    assert words in " ".join(result.stderr.split())


def test_help_teaches():
    result = run("--help")
    assert "taut train --data mnist --norm linf --radius 0.1 --out runs/a" in result.output
    subjects = ("data", "loss", "network", "optimisation", "run")
    headings = ["Common options:", *(f"Advanced {subject} options:" for subject in subjects)]
    places = [result.output.index(f"\n{heading}\n") for heading in headings]
    assert places == sorted(places) and "\nOptions:" not in result.output
    for option, section in (("--radius", 1), ("--json", 1), ("--alpha", 3), ("--threads", 6)):
        place = result.output.index(f"\n  {option} ")
        assert sum(heading < place for heading in places) == section, option


def test_every_field_of_a_configuration_is_an_option():
    options = {parameter.name for parameter in train.params}
    assert {field.name for field in fields(TrainConfig)} <= options


def helped(name: str) -> str:
    """The help text of an option."""
    (option,) = (each for each in train.params if each.name == name)
    assert isinstance(option, click.Option) and option.help is not None
    return option.help


def test_help_states_the_defaults():
    data = load_labelled("digits")
    plain = TrainConfig()
    for name in ("data", "activation", "alpha", "decay", "adversarial_steps"):
        assert helped(name).endswith(f"  [default: {getattr(plain, name)}]")
    assert "by default l2, or linf if tolerances are given" in helped("norm") and plain.norm == "l2"
    assert TrainConfig(tolerance="a=1").norm == "linf"
    norms = ("l2", "linf", "l1")
    found = {norm: resolve(TrainConfig(norm=norm, arch="dense"), data) for norm in norms}
    for_linf = [resolve(TrainConfig(norm="linf", arch=arch), data) for arch in ("distance", "ibp")]
    wrn = resolve(TrainConfig(arch="wrn"), data)
    assert resolve(TrainConfig(norm="linf"), data) == for_linf[0]
    assert resolve(TrainConfig(norm="linf", constraint="linf"), data) == found["linf"]
    assert (
        "The default is distance in linf if neither a constraint nor tolerances are given, and dense in "
        "all other cases" in helped("arch")
    )
    assert [each.lr for each in for_linf] == [0.02, 0.006]
    assert for_linf[1].clip == pytest.approx(
        0.2
    ) and "default the smaller of 2 * radius and" in helped("clip")
    assert [each.optimizer for each in found.values()] == ["adam", "aggmo", "aggmo"]
    assert {each.optimizer for each in for_linf} == {"adam"}
    aggmo = "by default aggmo in linf and l1, except with --arch distance or ibp; adam otherwise"
    assert aggmo in helped("optimizer")
    derived = ", ".join(f"{c.constraint} in {n}" for n, c in found.items())
    assert f"by default {derived}; none for --arch distance, ibp and wrn" in helped("constraint")
    assert {each.constraint for each in (*for_linf, wrn)} == {"none"}
    derived = ", ".join(f"{c.radius:g} in {n}" for n, c in found.items())
    assert f"by default {derived}" in helped("radius")
    assert [found[norm].lipschitz for norm in found] == [1, 1000, 1]
    assert resolve(TrainConfig(norm="linf", arch="conv"), data).lipschitz == 1000
    assert "with --arch wrn or ibp, the network ignores it" in helped("lipschitz")
    for arch, norm in (("wrn", "l2"), ("ibp", "linf")):
        config = resolve(TrainConfig(norm=norm, arch=arch), data)
        shape, size = data.train.inputs.shape[1:], len(data.classes)
        nets = [build_network(replace(config, lipschitz=k), shape, size) for k in (1.0, 5.0)]
        assert str(nets[0]) == str(nets[1])
    assert "by default 1000 for constrained layers in linf" in helped("lipschitz")
    assert [found[norm].lr for norm in found] == [0.003, 0.1, 0.1]
    hinge = resolve(TrainConfig(norm="linf", arch="dense", loss="hinge", lipschitz=50.0), data)
    assert hinge.lr == pytest.approx(1 / 50)
    hkr = resolve(TrainConfig(norm="l1", loss="hkr", lipschitz=50.0), data)
    assert hkr.lr == pytest.approx(1 / 50)
    rates = "0.1 with cross_entropy and 1 / lipschitz with hinge or hkr"
    assert (
        "by default 0.003 for adam (0.02 for --arch distance, 0.006 for ibp); for aggmo in linf and l1, "
        + rates
        in helped("lr")
    )
    for each in found.values():
        assert f"by default {each.loss}" in helped("loss")
        assert each.margin is not None and each.temperature == pytest.approx(4.4 / each.margin)
    assert "by default 4.4 / margin, or 1 for --arch ibp" in helped("temperature")
    assert for_linf[1].temperature == 1
    assert found["l2"].hidden == (256,) * 3
    assert "for smaller images: 256,256,256 (dense), 256,256 (conv)" in helped("hidden")
    after = [resolve(TrainConfig(arch=arch), data).hidden for arch in ("conv", "lenet", "wrn")]
    assert after == [(256,) * 2, (50,), ()]
    assert "lenet has one layer of width 50, wrn has none" in helped("hidden")


def test_the_margin_of_the_paper_is_half_of_a_proof():
    (option,) = (each for each in train.params if each.name == "margin")
    words = getattr(option, "help", "")
    assert "--lipschitz 1000 --margin 100" in words and "half" in words
    assert margin_for_radius(0.1, lipschitz=1000, norm="linf") == 2 * 100


def test_all_that_training_knows_can_be_typed(tmp_path):
    run(
        "--hidden", "8", "--epochs", "2", "--batch-size", "512", "--schedule", "step",
        "--milestones", "1", "--decay", "0.5", "--warmup", "0.5", "--jacobian-weight", "0.01",
        "--adversarial-radius", "0.1", "--adversarial-steps", "2", "--checkpoint-every", "2",
        "--loss", "hkr", "--alpha", "3", "--no-report", "--json", "--out", str(tmp_path / "x"),
        code=0,
    )  # fmt: skip
    config = load_run(tmp_path / "x").config
    assert (config.milestones, config.decay, config.warmup) == ((1,), 0.5, 0.5)
    assert (config.jacobian_weight, config.adversarial_steps) == (0.01, 2)
    assert (config.checkpoint_every, config.alpha) == (2, 3)


def test_a_stop_before_the_end_is_told_and_curves_come_later_too(tmp_path):
    args = ("--hidden", "8", "--batch-size", "512", "--lr", "1e-9", "--patience", "1")
    out = str(tmp_path / "x")
    result = run(*args, "--epochs", "9", "--no-report", "--out", out, code=0)
    words = " ".join(result.output.split())
    assert "Stopped before epoch 9: no better certified validation accuracy in the last 1" in words
    assert "tensorboard" not in words
    result = run(*args, "--epochs", "9", "--no-report", "--out", out, "--tensorboard", code=0)
    assert f"tensorboard --logdir {out}/tensorboard" in "".join(result.output.splitlines())
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(f"{out}/tensorboard")
    events.Reload()
    found = load_run(out)
    assert [e.step for e in events.Scalars("loss")] == [row["epoch"] for row in found.history]


def test_a_mistake_does_not_spoil_the_folder(tmp_path):
    out = str(tmp_path / "x")
    args = ("--epochs", "1", "--batch-size", "512", "--no-report", "--out", out)
    assert "even number of channels" in " ".join(run("--hidden", "7", *args).stderr.split())
    run("--hidden", "8", *args, code=0)


@pytest.mark.parametrize("file", ["result.json", "inputs.json", "log.jsonl", "resolved.toml"])
def test_a_run_that_is_cut_short_is_told(folder, tmp_path, file):
    out = tmp_path / "x"
    shutil.copytree(folder, out)
    whole = (out / file).read_bytes()
    (out / file).write_bytes(whole[: len(whole) - 9])
    result = invoke("certify", out, code=2)
    words = "".join(result.stderr.splitlines())
    assert f"{file} must be as the run wrote it; got a file that is cut short or altered" in words


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--schedule", "step"), "`--milestones` must list the epochs"),
        (("--milestones", "3"), "--milestones has an effect only with --schedule step"),
        (("--decay", "0.5"), "--decay has an effect only with --schedule step"),
        (("--channels", "8"), "--channels has an effect only with --arch conv"),
        (("--alpha", "3"), "--alpha has an effect only with --loss hkr"),
        (("--adversarial-steps", "3"), "effect only with --adversarial-radius"),
        (("--loss", "hinge", "--temperature", "2"), "effect only with --loss cross_entropy"),
        (("--device", "meta:x"), "that torch finds on this machine"),
        (("--device", "xpu:7"), "that torch finds on this machine"),
    ],
)
def test_settings_that_cannot_be(args, words, tmp_path):
    result = run(*args, "--no-report", "--out", str(tmp_path / "x"), code=2)
    assert words in " ".join(result.stderr.split())


def test_a_run_keeps_what_was_requested_and_what_followed(folder, tmp_path):
    """The stored configuration with an option overridden is the fresh one with that option."""
    requested = from_toml(RunFolder(folder).config_file.read_text())
    assert (requested.radius, requested.hidden, requested.lr) == (0.3, (16,), None)
    assert RunFolder(folder).config() == resolve(requested, load_labelled("digits"))
    file = str(folder / "config.toml")
    assert configured("--config", file, "--norm", "linf") == replace(requested, norm="linf")
    assert configured("--config", file, "--seed", "3") == replace(requested, seed=3)
    assert configured("--seed", "3") == TrainConfig(seed=3, threads=1)


def configured(*args: str) -> TrainConfig:
    """The configuration that `taut train` would train with."""
    with train.make_context("train", list(args)) as context:
        given = dict(context.params)
        for name in ("out", "report", "tensorboard", "as_json"):
            given.pop(name)
        return configure(given.pop("config_file"), given)
