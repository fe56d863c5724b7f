"""What the README says, runs."""

import ast
import contextlib
import doctest
import io
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md")


def blocks(text: str, *languages: str) -> list[str]:
    """The fenced blocks of a page that are in one of `languages`."""
    fence = re.compile(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return fence.findall(text)


def run_block(code: str, namespace: dict[str, object]) -> None:
    """Runs a block; what follows `# -> ` on the last line of a statement is what it must show."""
    lines = code.splitlines()
    claims = 0
    for statement in ast.parse(code).body:
        shown = io.StringIO()
        _, marker, claim = lines[(statement.end_lineno or 0) - 1].partition("  # -> ")
        with contextlib.redirect_stdout(shown):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "README", "eval"), namespace)
                if value is not None:
                    print(repr(value))
            else:
                exec(compile(ast.Module([statement], []), "README", "exec"), namespace)
        if marker:
            claims += 1
            same = doctest.OutputChecker().check_output(
                claim + "\n", shown.getvalue(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            )
            assert same, (
                f"{ast.unparse(statement)}\n  README: {claim}\n  run:    {shown.getvalue()}"
            )
    assert claims == code.count("# ->"), f"a claim was not checked in:\n{code}"


def commands(text: str) -> list[list[str]]:
    """The command lines of a page, comments removed, each as a list of words."""
    lines = "\n".join(blocks(text, "bash", "sh")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def check_taut(words: list[str]) -> None:
    """Every subcommand and option of a `taut` line exists, by the help of the command itself."""
    names = []
    for word in words:
        if word.startswith("-"):
            break
        names.append(word)
    result = CliRunner().invoke(main, [*names, "--help"])
    assert result.exit_code == 0, f"taut {shlex.join(words)}\n{result.output}"
    for option in (word.split("=")[0] for word in words if word.startswith("-")):
        known = re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", result.output)
        assert known, f"taut {shlex.join(words)}: {option} is not in\n{result.output}"


def check_make(words: list[str]) -> None:
    """Every target of a `make` line exists."""
    targets = [word for word in words if "=" not in word]
    run = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_the_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    namespace: dict[str, object] = {}
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python")
    assert found
    for block in found:
        run_block(block, namespace)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_exist(page):
    checks = {"taut": check_taut, "make": check_make}
    found = commands((ROOT / page).read_text(encoding="utf-8"))
    assert any(words[0] in checks for words in found)
    for program, *words in found:
        if program in checks:
            checks[program](words)


@pytest.mark.parametrize("page", PAGES)
def test_the_links_to_files_hold(page):
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize(
    "code",
    ["1 + 1  # -> 3", "print('a')  # -> b", "x = 1  # -> 1", "for i in [1]:\n    i  # -> 1\n    i"],
)
def test_a_false_claim_is_found(code):
    with pytest.raises(AssertionError):
        run_block(code, {})


def test_a_true_claim_passes():
    run_block("x = 1\nx + 1  # -> 2\nprint('a', x)  # -> a 1\nmax(\n    1, 2\n)  # -> 2", {})


def test_a_command_that_does_not_exist_is_found():
    for words in (["slack"], ["--slack"], ["demo", "--slack", "1"]):
        with pytest.raises(AssertionError):
            check_taut(words)
    with pytest.raises(AssertionError):
        check_make(["slack"])
