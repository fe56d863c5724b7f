import importlib.metadata

import click
import pytest
from click.testing import CliRunner

from support import invoke
from taut.cli.main import SUBCOMMANDS, LazyGroup, Subcommand, main, plugins
from taut.errors import ArgumentError


@click.command()
@click.option("--size", type=int, required=True)
def fail(size):
    raise ArgumentError(f"fail: `size` must be even; got size={size}. Use {size + 1}.")


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
    result = invoke("--help")
    assert result.exit_code == 0
    assert "Lipschitz" in result.output
    assert "taut demo --out demo" in result.output
    for name, entry in SUBCOMMANDS.items():
        assert name in result.output and entry.help in result.output


def test_version_is_that_of_the_distribution():
    result = invoke("--version")
    assert result.output == f"taut, version {importlib.metadata.version('taut')}\n"


def test_the_console_script_is_main():
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="taut")
    assert script.load() is main


@pytest.mark.parametrize("name", [*SUBCOMMANDS, *plugins()])
def test_every_subcommand_has_help(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_an_unknown_subcommand_is_a_usage_error():
    result = invoke("slack")
    assert result.exit_code == 2
    assert "No such command 'slack'" in result.stderr


def test_help_imports_no_subcommand(group):
    result = CliRunner().invoke(group, ["--help"])
    assert result.exit_code == 0
    assert "Cannot be imported." in result.output and "Comes from a plugin." in result.output


def test_plugins_run_like_subcommands(group):
    result = CliRunner().invoke(group, ["added"])
    assert isinstance(result.exception, RuntimeError)


def test_the_lab_is_a_plugin():
    assert list(plugins()) == ["bench", "reproduce"]


def test_an_error_of_taut_is_one_red_line(group):
    result = CliRunner().invoke(group, ["fail", "--size", "3"], color=True)
    assert result.exit_code == 2
    assert result.stdout == ""
    sentence = "taut: fail: `size` must be even; got size=3. Use 4."
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
