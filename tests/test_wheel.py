"""The wheels, built and installed outside the tree, are the library and the lab."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def run(*command, cwd, **variables):
    result = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


PROJECTS = {"taut": ROOT, "taut_lab": ROOT / "src" / "taut_lab"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    for project in PROJECTS.values():
        # Without isolation: the build backend is installed, and nothing is downloaded.
        build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder))
        run(*build, str(project), cwd=folder)
    return {name: next(folder.glob(f"{name}-*.whl")) for name in PROJECTS}


@pytest.fixture(scope="module")
def site(wheels, tmp_path_factory):
    """A folder in which the library is installed, and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    run(*pip, "--no-deps", "--target", str(folder), str(wheels["taut"]), cwd=folder)
    return folder


@pytest.mark.parametrize("name", PROJECTS)
def test_a_wheel_contains_the_files_of_its_package_and_no_others(wheels, name):
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / name).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__" and path.name != "pyproject.toml"
    }
    names = zipfile.ZipFile(wheels[name]).namelist()
    assert {file for file in names if ".dist-info/" not in file} == expected


def test_the_wheel_of_the_library_is_typed_and_licensed(wheels):
    names = zipfile.ZipFile(wheels["taut"]).namelist()
    assert "taut/py.typed" in names
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_both_distributions_have_the_same_version(wheels):
    versions = {wheel.name.split("-")[1] for wheel in wheels.values()}
    assert len(versions) == 1


# The editable install of the tree is on the path too, so each script checks what it imported.
FROM_THE_WHEEL = """
import sys
from pathlib import Path
site = Path(sys.argv[1]).resolve()
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "taut":
        assert Path(module.__file__).resolve().is_relative_to(site), module.__file__
"""


def test_the_library_works_outside_the_tree(site, tmp_path):
    script = (
        "import taut, torch\n"
        "print(taut.nn.MaxMin()(torch.tensor([2.0, 1.0])).tolist())\n"
        "for name in taut.__all__: getattr(taut, name)\n" + FROM_THE_WHEEL
    )
    out = run("-c", script, str(site), cwd=tmp_path, PYTHONPATH=str(site))
    assert sorted(eval(out)) == [1.0, 2.0]


def test_the_command_works_outside_the_tree(site, tmp_path):
    script = "from taut.cli.main import main\nmain(['--help'], 'taut', standalone_mode=False)\n"
    out = run("-c", script + FROM_THE_WHEEL, str(site), cwd=tmp_path, PYTHONPATH=str(site))
    assert out.startswith("Usage: taut")
    out = run("-m", "taut.cli.main", "--version", cwd=tmp_path, PYTHONPATH=str(site))
    assert out == f"taut, version {version('taut')}\n"


def test_the_library_alone_has_no_commands_of_the_lab(wheels, tmp_path):
    """In an environment of its own, `taut --help` lists no plugin; with the lab it lists two."""
    environment = tmp_path / "environment"
    run("-m", "venv", "--without-pip", str(environment), cwd=tmp_path)
    python = environment / "bin" / "python"
    (folder,) = environment.glob("lib/python*/site-packages")
    click = Path(importlib.util.find_spec("click").origin).parent  # pyright: ignore
    os.symlink(click, folder / "click")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")

    def listed():
        command = [str(python), "-m", "taut.cli.main", "--help"]
        shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert shown.returncode == 0, shown.stderr
        return [name for name in ("demo", "bench", "reproduce") if f"  {name} " in shown.stdout]

    for name, expected in (("taut", ["demo"]), ("taut_lab", ["demo", "bench", "reproduce"])):
        target = ("--no-deps", "--target", str(folder), str(wheels[name]))
        run(*pip, *target, cwd=tmp_path)
        assert listed() == expected
