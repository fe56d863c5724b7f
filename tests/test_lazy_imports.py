"""Heavy imports are lazy: the core needs no extra, the command line needs no torch."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import taut

ROOT = Path(__file__).parents[1]

# Distribution -> name to import, for each requirement of an extra or of the lab.
IMPORT_NAMES = {
    "pandas": "pandas",
    "polars": "polars",
    "playwright": "playwright",
    "POT": "ot",
    "build": "build",
    "dask": "dask",
    "deel-torchlip": "deel",
    "loky": "loky",
    "foolbox": "foolbox",
    "furo": "furo",
    "hatchling": "hatchling",
    "hypothesis": "hypothesis",
    "jinja2": "jinja2",
    "matplotlib": "matplotlib",
    "mpmath": "mpmath",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime",
    "onnxscript": "onnxscript",
    "orthogonium": "orthogonium",
    "pillow": "PIL",
    "pyarrow": "pyarrow",
    "pyautoattack": "pyautoattack",
    "pyright": "pyright",
    "pytest": "pytest",
    "pytest-xdist": "xdist",
    "ruff": "ruff",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "sphinx": "sphinx",
    "sphinx-gallery": "sphinx_gallery",
    "tensorboard": "tensorboard",
}


def newly_imported(before: str, code: str) -> set[str]:
    """Top-level modules that `code` loads in a fresh interpreter in which `before` has run."""
    script = (
        f"import sys, json\n{before}\nold = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - old})))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_every_requirement_beyond_the_core_is_in_the_table():
    entries: list[str] = []
    for path, lists in (("pyproject.toml", []), ("src/taut_lab/pyproject.toml", ["dependencies"])):
        project = tomllib.loads((ROOT / path).read_text(encoding="utf-8"))["project"]
        for some in (*project["optional-dependencies"].values(), *(project[n] for n in lists)):
            entries += some
    named = {re.split(r"[\[<>=!~; ]", entry)[0] for entry in entries}
    assert named - {"taut"} == set(IMPORT_NAMES)


@pytest.mark.slow
def test_the_core_needs_no_extra():
    touch_every_name = "import taut\nfor name in taut.__all__: getattr(taut, name)"
    # torch itself imports sympy and mpmath for its compiler.
    loaded = newly_imported("import torch._dynamo", touch_every_name)
    assert "taut" in loaded
    assert loaded & set(IMPORT_NAMES.values()) == set()


def test_estimators_without_scikit_learn_name_the_extra():
    attempt = (
        "import sys, taut\nsys.modules['sklearn'] = None\n"
        "try:\n    taut.sklearn.WassersteinDrift\n"
        "except taut.errors.MissingExtraError as error:\n"
        "    assert \"Install it with pip install 'taut[sklearn]'\" in str(error)\n"
        "else:\n    raise SystemExit('no error')"
    )
    assert "taut" in newly_imported("", attempt)


@pytest.mark.parametrize(
    "code",
    [
        "import taut; taut.errors; dir(taut); taut.__version__",
        "from taut.cli.main import main; main(['--help'], standalone_mode=False)",
        "from taut.cli.main import main; main(['--version'], standalone_mode=False)",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    loaded = newly_imported("", code)
    assert "taut" in loaded
    assert loaded & {"torch", "numpy", "rich", *IMPORT_NAMES.values()} == set()


def test_help_lists_the_plugins_without_importing_their_commands():
    code = (
        "import sys\nfrom taut.cli.main import main\nmain(['--help'], standalone_mode=False)\n"
        "loaded = [name for name in sys.modules if name.startswith('taut_lab')]\n"
        "assert sorted(loaded) == ['taut_lab', 'taut_lab.commands'], loaded"
    )
    assert "taut_lab" in newly_imported("", code)


@pytest.mark.slow
def test_the_library_works_without_the_lab():
    code = (
        "import sys\nsys.modules['taut_lab'] = None\nimport taut\n"
        "for name in taut.__all__: getattr(taut, name)\n"
        "import taut.report.demo, taut.report.classifier_report, taut.cli.attack, taut.cli.train"
    )
    assert "taut" in newly_imported("", code)


def test_the_logger_is_silent_by_default():
    code = "import logging, taut; logging.getLogger('taut.nn').warning('hidden')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_every_public_name_exists():
    assert dir(taut) == sorted(taut.__all__)
    for name in taut.__all__:
        value = getattr(taut, name)
        # An empty folder can be imported, and is not a package.
        assert not isinstance(value, ModuleType) or value.__file__


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(taut.__file__).read_text(encoding="utf-8"))
    (seen,) = (node for node in tree.body if isinstance(node, ast.If))
    names = [
        alias.name for node in seen.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted([*names, "__version__"]) == sorted(taut.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'taut' has no attribute 'slack'"):
        getattr(taut, "slack")  # noqa: B009
