"""The wheel, built and installed outside the tree, is the whole library."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # Without isolation: the builder is already here, and nothing is fetched.
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (built,) = folder.glob("taut-*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    run(*pip, "--no-deps", "--target", str(folder), str(wheel), cwd=folder)
    return folder


def test_it_holds_every_file_of_the_source_and_no_other(wheel):
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "taut").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == expected
    assert "taut/py.typed" in packed
    assert [name for name in names if name.endswith("licenses/LICENSE")]


# The editable install of the tree is on the path too, so each script proves whom it asked.
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
    assert out == "taut, version 0.1.0\n"
