"""What the pages of docs/ show, runs; what they name, exists."""

import ast
import re
import shlex
import textwrap

import pytest

from test_readme import ROOT, check_make, check_taut, run_block

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in [
        DOCS / "index.rst",
        *(DOCS / "guide").glob("*.rst"),
        *(DOCS / "theorems").glob("*.rst"),
    ]
)
_BLOCK = re.compile(r"^\.\. code-block:: (\w+)\n\n((?:[ ]+.*\n|\n)+)", re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page that are in `language`."""
    found = _BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return [textwrap.dedent(code) for name, code in found if name == language]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them write files
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in blocks(page, "python"):
        run_block(block, namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")])
def test_the_commands_exist(page):
    for line in "\n".join(blocks(page, "bash")).splitlines():
        words = shlex.split(line, comments=True)
        if "taut" in words[:5]:
            check_taut(words[words.index("taut") + 1 :])
        elif words[:1] == ["make"]:
            check_make(words[1:])


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("theorems/")])
def test_every_theorem_names_tests_that_exist(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    named = re.findall(r"``(tests/[\w/]+\.py)::(\w+)``", text)
    assert named or page == "theorems/index.rst"
    for file, name in named:
        functions = {
            node.name
            for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef)
        }
        assert name in functions, f"{page}: {file} has no {name}"


def test_every_public_room_has_a_page():
    import taut

    rooms = {
        name for name in taut.__all__ if name.islower() and hasattr(getattr(taut, name), "__all__")
    }
    pages = {path.stem for path in (DOCS / "api").glob("*.rst")}
    assert rooms <= pages


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_overlooked(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = _BLOCK.findall(text)
    assert len(found) == text.count("code-block::")
    assert {language for language, _ in found} <= {"python", "bash"}
