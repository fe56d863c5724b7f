"""Imports point one way: each room imports only from the rooms before it, and in no circle."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import taut

ROOMS = (
    "errors norms bounds linalg functional nn losses regularizers optim audit certificates export "
    "lattice parallel data attacks wasserstein training sklearn pictures lab report bench cli"
).split()


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted name -> file, for every module below the folder `package`."""
    return {
        ".".join(("taut", *path.relative_to(package).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for path in package.rglob("*.py")
    }


def imports_of(name: str, path: Path) -> Iterator[str]:
    """The dotted names a file imports, wherever in the file it does so."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*anchor, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def violations(package: Path) -> list[str]:
    """One sentence for each import that points the wrong way."""
    modules = modules_of(package)
    found: list[str] = []
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        if name in ("taut", "taut.__main__"):  # the front door names every room
            continue
        room = name.split(".")[1]
        if room not in ROOMS:
            found.append(f"{name} stands in no room")
            continue
        for imported in imports_of(name, path):
            top, _, rest = imported.partition(".")
            if top != "taut" or imported == "taut.__version__":
                continue
            other = rest.split(".")[0]
            if other not in ROOMS:
                found.append(f"{name} imports {imported} through the front door")
            elif ROOMS.index(other) > ROOMS.index(room):
                found.append(f"{name} imports {imported}, a room after its own")
            target = imported if imported in modules else imported.rpartition(".")[0]
            if target in modules:
                graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("circle: " + " -> ".join(reversed(error.args[1])))
    return found


def test_imports_point_one_way():
    assert violations(Path(taut.__file__).parent) == []


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"norms.py": "from taut.nn import MaxMin"}, "a room after its own"),
        ({"norms.py": "from taut import nn"}, "a room after its own"),
        ({"norms.py": "import taut.nn.linear as linear"}, "a room after its own"),
        ({"norms.py": "def late():\n    from .bounds import Bound"}, "a room after its own"),
        ({"linalg/balls.py": "from ..nn.linear import Linear"}, "a room after its own"),
        ({"linalg/__init__.py": "from ..nn import linear"}, "a room after its own"),
        ({"nn/linear.py": "import taut"}, "through the front door"),
        ({"nn/linear.py": "from taut import L2"}, "through the front door"),
        ({"utils.py": "x = 1"}, "stands in no room"),
        (
            {"nn/linear.py": "from taut.nn.conv import a", "nn/conv.py": "from .linear import b"},
            "circle: taut.nn.",
        ),
        (
            {"nn/__init__.py": "from .linear import b", "nn/linear.py": "from taut.nn import b"},
            "circle: taut.nn",
        ),
    ],
)
def test_a_planted_violation_is_found(tmp_path, files, fault):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [sentence for sentence in violations(tmp_path) if fault in sentence]


def test_imports_that_point_the_right_way_pass(tmp_path):
    (tmp_path / "nn").mkdir()
    (tmp_path / "__init__.py").write_text("from taut import nn, norms")
    (tmp_path / "norms.py").write_text("import torch\nfrom taut.errors import TautError")
    (tmp_path / "nn" / "__init__.py").write_text("from taut.nn.linear import Linear")
    (tmp_path / "nn" / "linear.py").write_text("from ..norms import L2\nfrom . import scale")
    (tmp_path / "nn" / "scale.py").write_text("from taut import __version__")
    assert violations(tmp_path) == []
