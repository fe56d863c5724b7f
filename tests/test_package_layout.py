"""Imports point one way: each package imports only packages before it, and in no cycle.

`python tests/test_package_layout.py` prints the import graph for CONTRIBUTING.md.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The library in order, then the packages of the lab.
ORDER = {
    "taut": "lazy errors checker runner names norms bounds linalg functional rules audit nn losses "
    "regularizers optim certificates export lattice parallel data attacks transport training "
    "evaluation sklearn plotting report cli",
    "taut_lab": "framework experiments benchmarks report cli commands",
}
PACKAGES = [f"{top}.{name}" for top, names in ORDER.items() for name in names.split()]
# The version, and the group of entry points by which other packages add commands.
_NOT_MODULES = ("taut.__version__", "taut.commands")
_MODULE = re.compile(r"(taut|taut_lab)(\.\w+)+")


def modules_in(source: Path) -> dict[str, Path]:
    """Dotted name -> file, for every module of both import packages below `source`."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): path
        for top in ORDER
        for path in (source / top).rglob("*.py")
    }


def imports_in(name: str, path: Path) -> Iterator[str]:
    """The dotted names that the import statements of a file name, anywhere in it."""
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


def named_in_strings(path: Path) -> Iterator[str]:
    """The dotted names in strings of a file, by which it can import modules as well."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            target = node.value.partition(":")[0]
            if node not in docstrings and _MODULE.fullmatch(target):
                yield target
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            if str(node.values[0].value).startswith(tuple(f"{top}." for top in ORDER)):
                # f"taut.nn.{name}" imports from taut.nn; f"taut.{name}" from anywhere.
                yield str(node.values[0].value).rpartition(".")[0]


def package_of(name: str) -> str:
    """The package of a module: its first two names."""
    return ".".join(name.split(".")[:2])


def edges_in(source: Path, strings: bool = True) -> Iterator[tuple[str, str]]:
    """Module, and what it imports, for imports within the project."""
    for name, path in modules_in(source).items():
        # The front doors: `taut/__init__.py` names every package of the library.
        if name in (*ORDER, "taut.__main__"):
            continue
        found = [*imports_in(name, path), *(named_in_strings(path) if strings else ())]
        for imported in found:
            if imported.partition(".")[0] in ORDER and imported not in _NOT_MODULES:
                yield name, imported


def violations(source: Path) -> list[str]:
    """One sentence for each import that points the wrong way."""
    modules = modules_in(source)
    found = [
        f"{name} is in no known package"
        for name in modules
        if name not in (*ORDER, "taut.__main__") and package_of(name) not in PACKAGES
    ]
    for name, imported in edges_in(source):
        own, package = package_of(name), package_of(imported)
        if package not in PACKAGES:
            found.append(f"{name} imports {imported} through the front door")
        elif own in PACKAGES and PACKAGES.index(package) > PACKAGES.index(own):
            found.append(f"{name} imports {imported}, a later package")
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, imported in edges_in(source, strings=False):
        target = imported if imported in modules else imported.rpartition(".")[0]
        if target in modules:
            graph[name].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("cycle: " + " -> ".join(reversed(error.args[1])))
    return found


def drawing(source: Path) -> str:
    """The import graph of packages as a Mermaid diagram, without edges that others imply."""
    graph: dict[str, set[str]] = {}
    for name, imported in edges_in(source):
        package = package_of(imported)
        if package != package_of(name):
            graph.setdefault(package_of(name), set()).add(package)

    def below(package: str) -> set[str]:
        direct = graph.get(package, set())
        return direct.union(*map(below, direct))

    lines = ["graph LR"]
    for package in sorted(graph, key=PACKAGES.index):
        implied = set().union(*map(below, graph[package]))
        for other in sorted(graph[package] - implied, key=PACKAGES.index):
            lines.append(f"  {package.removeprefix('taut.')} --> {other.removeprefix('taut.')}")
    return "\n".join(lines)


def test_imports_point_one_way():
    assert violations(ROOT / "src") == []


def test_the_drawing_in_contributing_is_the_import_graph():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (drawn,) = re.findall(r"```mermaid\n(.*?)\n```", text, re.DOTALL)
    assert drawn == drawing(ROOT / "src"), "run python tests/test_package_layout.py and paste"


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({"taut/norms.py": "from taut.nn import MaxMin"}, "a later package"),
        ({"taut/norms.py": "from taut import nn"}, "a later package"),
        ({"taut/norms.py": "import taut.nn.linear as linear"}, "a later package"),
        ({"taut/norms.py": "def late():\n    from .bounds import Bound"}, "a later package"),
        ({"taut/linalg/ball_projections.py": "from ..nn.linear import Linear"}, "a later package"),
        ({"taut/linalg/__init__.py": "from ..nn import linear"}, "a later package"),
        ({"taut/norms.py": "import_module('taut.nn.linear')"}, "a later package"),
        ({"taut/norms.py": "load(f'taut.nn.{name}')"}, "a later package"),
        ({"taut/norms.py": "table = {'a': 'taut.nn:MaxMin'}"}, "a later package"),
        ({"taut/cli/main.py": "import taut_lab.cli.bench"}, "a later package"),
        ({"taut/cli/main.py": "load('taut_lab.cli.bench:bench')"}, "a later package"),
        ({"taut/cli/main.py": "import_module(f'taut.{name}')"}, "through the front door"),
        ({"taut/nn/linear.py": "import taut"}, "through the front door"),
        ({"taut/nn/linear.py": "from taut import L2"}, "through the front door"),
        ({"taut/utils.py": "x = 1"}, "in no known package"),
        ({"taut_lab/framework/a.py": "from taut_lab.cli import b"}, "a later package"),
        (
            {
                "taut/nn/linear.py": "from taut.nn.conv import a",
                "taut/nn/conv.py": "from .linear import b",
            },
            "cycle: taut.nn.",
        ),
        (
            {
                "taut/nn/__init__.py": "from .linear import b",
                "taut/nn/linear.py": "from taut.nn import b",
            },
            "cycle: taut.nn",
        ),
    ],
)
def test_a_wrong_import_is_found(tmp_path, files, fault):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    assert [sentence for sentence in violations(tmp_path) if fault in sentence]


def test_correct_imports_pass(tmp_path):
    files = {
        "taut/__init__.py": "from taut import nn, norms",
        "taut/norms.py": '"""See taut.nn."""\nimport torch\nfrom taut.errors import TautError',
        "taut/nn/__init__.py": "from taut.nn.linear import Linear",
        "taut/nn/linear.py": "from ..norms import L2\nfrom . import scale",
        "taut/nn/scale.py": "from taut import __version__\nimport_module('taut.norms')",
        "taut_lab/cli/bench.py": "from taut.nn import Linear",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    assert violations(tmp_path) == []
    assert (
        drawing(tmp_path) == "graph LR\n  norms --> errors\n  nn --> norms\n  taut_lab.cli --> nn"
    )


if __name__ == "__main__":
    print(drawing(ROOT / "src"))
