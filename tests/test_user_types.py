"""What editors and type checkers see of taut, in a project outside this tree."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import test_docs_examples
from test_readme import ROOT, blocks

pytest.importorskip("pyright")
pytestmark = pytest.mark.slow

RESULTS = """
import torch, taut
from taut.sklearn import LipschitzClassifier, WassersteinDrift

net = taut.nn.mlp([4, 8, 2])
x = torch.rand(3, 4)
reveal_type(net)  # Sequential
reveal_type(taut.bound_lipschitz(net))  # Bound
reveal_type(taut.bound_lipschitz(net, "linf").value)  # float
reveal_type(taut.certify(net, x, norm="l2", arithmetic="float32"))  # Certificates
reveal_type(taut.certify(net, x).radius)  # Tensor
reveal_type(taut.bound_outputs(net, x - 0.1, x + 0.1))  # tuple[Tensor, Tensor]
reveal_type(taut.fold(net))  # Sequential
reveal_type(taut.save(net, "net.safetensors"))  # Bound
reveal_type(taut.load("net.safetensors"))  # Module
reveal_type(taut.wasserstein(x, x))  # WassersteinResult
reveal_type(taut.wasserstein(x, x).lower.value)  # float
reveal_type(taut.functional.max_min(x))  # Tensor
reveal_type(LipschitzClassifier().fit(x.numpy(), [0, 1, 1]))  # LipschitzClassifier
reveal_type(WassersteinDrift().fit(x.numpy()).drifted(x.numpy(), above=0.5))  # bool
"""
MISTAKES = """
import torch, taut

net = taut.nn.mlp([4, 8, 2])
taut.bound_lipschitz(net, norm="l9")
taut.certify(net, torch.rand(3, 4), arithmetic="float31")
taut.certify(net, torch.rand(3, 4), norm="l3")
taut.nn.mlp([4, 8, 2], activation="swish")
taut.nn.mlp([4, 8, 2], constraint="tight")
"""


def pages() -> dict[str, str]:
    """The Python blocks of the README and of each page of the guide, as one file each."""
    found = {"readme": blocks((ROOT / "README.md").read_text(encoding="utf-8"), "python")}
    for page in test_docs_examples.PAGES:
        found[page.removesuffix(".rst")] = test_docs_examples.blocks(page, "python")
    return {
        name.replace("/", "_").replace("-", "_"): "import torch, taut\n\n" + "\n".join(code)
        for name, code in found.items()
        if code
    }


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory) -> dict[str, list[dict]]:
    """What pyright says of each file of a user's project."""
    project = tmp_path_factory.mktemp("project")
    for name, code in {**pages(), "results": RESULTS, "mistakes": MISTAKES}.items():
        (project / f"{name}.py").write_text(code, encoding="utf-8")
    # Examples end with the value that they show, and use the last pass of a loop.
    off = dict.fromkeys(("reportUnusedExpression", "reportPossiblyUnbound"), "none")
    settings = {"typeCheckingMode": "standard", **off}
    (project / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    run = subprocess.run([*command, str(project)], capture_output=True, text=True, cwd=project)
    found: dict[str, list[dict]] = {path.stem: [] for path in project.glob("*.py")}
    for each in json.loads(run.stdout)["generalDiagnostics"]:
        if each.get("rule", "").startswith(tuple(off)):
            continue
        found[Path(each["file"]).stem].append(each)
    return found


def test_the_examples_of_readme_and_guide_have_no_type_errors(diagnostics):
    assert len(pages()) >= 8
    assert {name: diagnostics[name] for name in pages() if diagnostics[name]} == {}


def test_the_types_of_results_are_known(diagnostics):
    shown = {each["range"]["start"]["line"]: each["message"] for each in diagnostics["results"]}
    expected = {
        line: text.rpartition("  # ")[2]
        for line, text in enumerate(RESULTS.splitlines())
        if text.startswith("reveal_type")
    }
    assert shown.keys() == expected.keys()
    for line, name in expected.items():
        assert shown[line].endswith(f' is "{name}"'), shown[line]


def test_misspelt_names_are_type_errors(diagnostics):
    found = {each["range"]["start"]["line"] for each in diagnostics["mistakes"]}
    assert found == set(range(4, len(MISTAKES.splitlines())))
