"""`taut attack`: attacks beside proofs, and the alarm when a certificate is violated."""

import json
import logging
from functools import partial

import pytest

import taut.errors
import taut.evaluation.evaluated_classifier
import taut.evaluation.robustness
from support import invoke
from taut.norms import L1
from taut.training import load_run

pytestmark = pytest.mark.slow

run = partial(invoke, "attack", "--num-steps", "10", "--limit", "40")


def test_attacks_lie_between_proof_and_clean_and_the_page_is_renewed(digits_run):
    result = run(digits_run, "--json", code=0)
    record = json.loads(result.stdout)
    assert record["examples"] == 40 and record["violations"] == []
    assert [row["radius"] for row in record["radii"]] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    before = {"fgsm": record["clean"], "pgd": record["clean"]}
    for row in record["radii"]:
        for name in ("fgsm", "pgd"):
            assert row["certified"] <= row[name] <= before[name]
            before[name] = row[name]
    html = (digits_run / "index.html").read_text()
    for words in ("Certified accuracy and attacks", "under PGD", "Minimal adversarial", "Training"):
        assert words in html


def test_people_see_the_table(digits_run):
    result = run(digits_run, "--no-report", "--attack", "pgd", "--radius", "0.3", code=0)
    assert "under PGD" in result.output and "FGSM" not in result.output
    assert "no attack changed a prediction inside its certified radius" in result.output


def test_a_success_inside_a_certified_radius_is_loud(digits_run, monkeypatch):
    honest = taut.evaluation.evaluated_classifier.certify_inputs

    def boastful(*args, **options):
        found = honest(*args, **options)
        object.__setattr__(found, "radius", found.radius * 5)
        return found

    monkeypatch.setattr(taut.evaluation.evaluated_classifier, "certify_inputs", boastful)
    result = run(digits_run, "--attack", "pgd", "--json", code=3)
    assert json.loads(result.stdout)["violations"]
    assert "VIOLATED CERTIFICATE" in result.stderr and "This is a bug in taut" in result.stderr
    html = (digits_run / "index.html").read_text()
    assert "An error in taut" in html and "every one is" not in html


def test_autoattack_is_silent_and_leaves_the_logger_alone(digits_run, caplog):
    logger = logging.getLogger("auto-attack")
    level = logger.level
    with caplog.at_level(logging.DEBUG):
        result = run(
            digits_run, "--attack", "autoattack", "--radius", "0.6", "--json", "--no-report", code=0
        )
    assert [record for record in caplog.records if record.name == "auto-attack"] == []
    assert logger.level == level
    record = json.loads(result.stdout)
    (row,) = record["radii"]
    assert record["violations"] == []
    assert row["certified"] <= row["autoattack"] < record["clean"]
    # The strongest of the attacks: a hundred steps of each kind leave nothing to ten of PGD.
    weaker = json.loads(run(digits_run, "--attack", "pgd", "--radius", "0.6", "--json").stdout)
    assert row["autoattack"] <= weaker["radii"][0]["pgd"]


def test_in_l1_only_autoattack_knows_a_way(digits_run):
    classifier = taut.evaluation.EvaluatedClassifier.from_run(load_run(digits_run), L1)
    with pytest.raises(taut.errors.ArgumentError, match="autoattack alone in L1"):
        taut.evaluation.robustness.evaluate_robustness(classifier, [0.1], ["pgd"])


def test_a_network_from_a_file_needs_a_radius(digits_run, tmp_path):
    model = digits_run / "model.safetensors"
    result = run(model, "--data", "digits", code=2)
    assert "--radius" in result.stderr
    page = tmp_path / "p.html"
    result = run(model, "--data", "digits", "--radius", "0.2", "--page", page, code=0)
    assert "under PGD" in page.read_text()


def test_a_gradient_attack_in_l1_is_refused_before_any_work(digits_run, monkeypatch):
    monkeypatch.setattr(taut.evaluation, "evaluate_robustness", None)
    result = run(digits_run, "--norm", "l1", "--radius", "1", "--attack", "pgd", code=2)
    assert "--attack pgd does not support L1" in " ".join(result.stderr.split())
    assert "certifying" not in result.output
