import importlib.metadata
import json

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from support import invoke
from taut.cli.main import OTHERS, SECTIONS, SUBCOMMANDS, LazyGroup, Subcommand, main, plugins
from taut.errors import ArgumentError


@click.command()
@click.option("--size", type=int, required=True)
def fail(size):
    remedy, option = f"Use {size + 1}.", ("size", size - 1)
    raise ArgumentError(
        subject="fail", argument="size", rule="must be even", got=size, remedy=remedy, option=option
    )


@click.command()
def crash():
    raise RuntimeError("a defect, not a mistake of the caller")


@pytest.fixture
def group():
    table = {
        "fail": Subcommand(f"{__name__}:fail", "Always fails."),
        "crash": Subcommand(f"{__name__}:crash", "Always crashes."),
        "broken": Subcommand("taut.no_such_module:command", "Cannot be imported."),
    }
    added = {"added": Subcommand(f"{__name__}:crash", "Comes from a plugin.")}
    option = click.Option(["--debug"], is_flag=True)
    group = LazyGroup("taut", table=table, plugins=lambda: added, params=[option])
    group.callback = lambda debug: None
    return group


def test_help_teaches():
    result = invoke("--help", code=0)
    assert "Lipschitz" in result.output
    assert "taut demo --out demo" in result.output
    for name, entry in SUBCOMMANDS.items():
        assert name in result.output and entry.help in result.output


def test_version_is_that_of_the_distribution():
    result = invoke("--version")
    assert (
        invoke("-V").output
        == result.output
        == f"taut, version {importlib.metadata.version('taut')}\n"
    )


def test_the_console_script_is_main():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="taut")
    assert script.load() is main


TAUGHT = {
    "audit": ("taut audit net.safetensors --norm l2 --at-most 1", "Exit status"),
    "export": ("taut export net.safetensors --to onnx --out net.onnx",),
    "gan": ("taut gan --data mnist --out runs/a", "for comparison"),
    "verify": ("The proof does not show who wrote the file", "Exit status"),
    "wasserstein": ("Examples:", "--fail-above", "--finite", "Exit status:", "LOWER", "ubyte.gz:3"),
}


@pytest.mark.parametrize("name", [*SUBCOMMANDS, *plugins()])
def test_every_subcommand_has_help(name):
    words = " ".join(invoke(name, "--help", code=0).output.split())
    for text in ("Usage:", *TAUGHT.get(name, ())):
        assert text in words


def test_an_unknown_subcommand_is_a_usage_error():
    result = invoke("slack", code=2)
    assert result.stderr == "taut: no such command 'slack'. See taut --help.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("certfy", "taut: no such command 'certfy'. Did you mean certify?"),
        ("data ftch", "taut data: no such command 'ftch'. Did you mean fetch?"),
        ("audit x --norms l2", "taut audit: no such option '--norms'. Did you mean --norm?"),
        (
            "predict x y --label z",
            "taut predict: no such option '--label'. See taut predict --help.",
        ),
        ("audit", "taut audit: `PATH` is missing. See taut audit --help."),
        (
            "export . --out x",
            "taut export: `--to` is missing. Use one of onnx, pt2, relu-onnx, safetensors.",
        ),
        (
            "audit . --norm l9",
            "taut audit: `--norm` must be one of 'l1', 'l2', 'linf'; got 'l9'. "
            "See taut audit --help.",
        ),
        (
            "certify nowhere",
            "taut certify: `PATH` must be an existing file or folder; got 'nowhere'. "
            "See taut certify --help.",
        ),
        (
            "audit conftest.py",
            "taut audit: conftest.py: it is truncated, or not a safetensors file.",
        ),
        (
            "wasserstein a b --confidence 2",
            "taut wasserstein: `--confidence` must be in the range 0<x<1; got 2.0. "
            "See taut wasserstein --help.",
        ),
        (
            "data fetch mnst",
            "taut data fetch: `NAME` must be one of 'mnist', 'fashion-mnist', 'cifar10'; got 'mnst'. "
            "Did you mean 'mnist'?",
        ),
        (
            "train --data mnst",
            "taut train: `--data` must be digits, mnist, fashion-mnist, cifar10, or a file or folder "
            "that exists; got 'mnst'. Did you mean 'mnist'?",
        ),
    ],
)
def test_mistakes_are_told_in_one_style(words, told):
    result = invoke(*words.split(), code=2)
    assert result.stderr.strip().splitlines()[-1] == told


@pytest.mark.parametrize("words", ["certfy --json", "audit --json", "audit . --json"])
def test_with_json_mistakes_are_json(words):
    result = invoke(*words.split())
    assert result.exit_code == 2 and result.stderr == ""
    error = json.loads(result.stdout)["error"]
    assert error["command"] in ("taut", "taut audit") and error["message"]


def test_commands_are_grouped_in_the_help():
    lines = invoke("--help").output.splitlines()
    for heading, names in SECTIONS.items():
        below = lines[lines.index(f"{heading}:") + 1 :]
        shown = [line.split()[0] for line in below[: below.index("")]]
        assert shown and set(shown) <= set(names)
    assert f"{OTHERS}:" not in lines


def test_names_are_completed(monkeypatch):
    def complete(words):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        shell = BashComplete(main, {}, "taut", "_TAUT_COMPLETE")
        return [item.value for item in shell.get_completions(*shell.get_completion_args())]

    assert complete("taut ver") == ["verify"]
    assert complete("taut --ver") == ["--version"]
    assert complete("taut audit --no") == ["--norm"]
    assert complete("taut audit --norm li") == ["linf"]
    assert complete("taut reproduce show three") == ["three-cones"]
    assert complete("taut train --data fash") == ["fashion-mnist", "fash"]  # or a file
    assert complete("taut data fetch mn") == ["mnist", "mn"]


def test_help_imports_no_subcommand(group):
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    assert "Cannot be imported." in result.output and "Comes from a plugin." in result.output
    assert f"{OTHERS}:" in result.output


def test_plugins_run_like_subcommands(group):
    result = CliRunner().invoke(group, ["added"])
    assert isinstance(result.exception, RuntimeError)


def test_the_lab_is_a_plugin():
    assert list(plugins()) == ["bench", "reproduce"]


def test_an_error_of_taut_is_one_red_line(group):
    result = CliRunner().invoke(group, ["fail", "--size", "3"], color=True)
    assert result.exit_code == 2
    assert result.stdout == ""
    sentence = "taut fail: `--size` must be even; got 3. Use 4, or use --size 2."
    assert result.stderr == click.style(sentence, fg="red") + "\n"


def test_debug_shows_the_traceback(group):
    result = CliRunner().invoke(group, ["--debug", "fail", "--size", "3"])
    assert isinstance(result.exception, ArgumentError)


def test_a_defect_is_not_dressed_up(group):
    result = CliRunner().invoke(group, ["crash"])
    assert isinstance(result.exception, RuntimeError)


def test_a_broken_import_names_its_cause(group):
    result = CliRunner().invoke(group, ["broken"])
    assert isinstance(result.exception, ModuleNotFoundError)
    assert "taut.no_such_module" in str(result.exception)
