"""`taut gan`: what it prints is what the folder holds."""

import json

from support import invoke
from taut.training.gan import load_gan_run


def test_a_finished_run_is_reported_again(tmp_path):
    arguments = ["--data", "digits", "--num-steps", "3", "--out", str(tmp_path / "run")]
    first = invoke("gan", *arguments, code=0)
    run = load_gan_run(tmp_path / "run")
    assert f"the value of the critic is {run.result['dual']:.3f}" in first.output
    assert "its constant is at most" in first.output
    again = invoke("gan", *arguments)
    assert "nothing was trained" in again.output
    told = json.loads(invoke("gan", *arguments, "--json").stdout)
    assert told["result"] == run.result
    assert told["config"]["critic"] == "lipschitz"


def test_a_clipped_critic_has_no_proven_constant(tmp_path):
    arguments = ["--data", "digits", "--num-steps", "2", "--critic", "clipped"]
    arguments += ["--out", str(tmp_path)]
    found = invoke("gan", *arguments)
    assert "this kind of critic has no proven constant" in found.output


def test_a_dataset_that_does_not_exist_makes_no_folder(tmp_path):
    out = tmp_path / "run"
    found = invoke("gan", "--data", "nope", "--out", str(out))
    assert found.exit_code == 2 and "got 'nope'" in found.output and not out.exists()


def test_advice_names_the_option_for_what_python_calls_an_argument(tmp_path):
    found = invoke("gan", "--data", "mnist", "--data-dir", tmp_path / "none", code=2)
    assert "Pass --data-dir or set TAUT_DATA" in found.output
