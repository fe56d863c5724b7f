"""What holds for every experiment of the registry, and for every committed record."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

import taut_lab.experiments
from taut_lab.experiments.registry import EXPERIMENTS
from taut_lab.framework.experiment import PRESETS
from taut_lab.framework.records import Record, Records, from_json, read_record_file, to_json
from taut_lab.report.experiment_report import collect_report

RECORDS = Records(Path(__file__).parents[3] / "records")
FILES = sorted(RECORDS.folder.glob("*/*.json"))
ORDER = """
folding absolute-value three-cones prob-dim jacobian-norms activation-statistics generator-distance
adversarial-robustness interpretable-gradients network-views bjorck-convergence
bjorck-against-spectral bjorck-runtime mnist-classify small-mnist cifar-classify dynamical-isometry
gan-samples tradeoff linf-frontier
"""


def test_every_experiment_is_registered_in_the_order_of_the_paper():
    folder = Path(taut_lab.experiments.__file__).parent
    defined = re.findall(
        r'^[A-Z_]+ = Experiment\(\n    name="([^"]+)"',
        "\n".join(path.read_text() for path in folder.glob("*.py")),
        flags=re.MULTILINE,
    )
    assert sorted(defined) == sorted(EXPERIMENTS)
    assert list(EXPERIMENTS) == ORDER.split()


def test_labels_are_printed_numbers_of_the_paper():
    found = [re.findall(r"\d+", e.label) for e in EXPERIMENTS.values() if e.in_paper]
    tables = [e.label for e in EXPERIMENTS.values() if "Table" in e.label]
    assert all(found)
    # Figures 1 and 3 are drawings, and CelebA (figure 15) is not among the datasets.
    figures = {int(n) for e in EXPERIMENTS.values() for n in _figures(e.label)}
    assert figures == set(range(2, 18)) - {3, 15}
    assert {int(re.findall(r"Table (\d)", label)[0]) for label in tables} == set(range(1, 8))


def _figures(label):
    return re.findall(r"\d+", label.partition("Figure")[2])


@pytest.mark.parametrize("name", [n for n, e in EXPERIMENTS.items() if e.in_paper])
def test_a_claim_without_records_is_undecided_and_its_rule_has_cases_for_the_paper(name):
    experiment = EXPERIMENTS[name]
    assert ". " not in experiment.claim  # one sentence
    checks = experiment.checks([])
    assert checks and len({check.statement for check in checks}) == len(checks)
    verdict = experiment.verdict([], "paper")
    assert verdict.word == "undecided" and "No cells" in verdict.reason


def test_the_verdicts_on_committed_records_follow_from_their_numbers():
    def word(name):
        verdict = collect_report(EXPERIMENTS[name], RECORDS).verdict
        assert verdict is not None
        return verdict.word

    # Exact constructions and times, which no budget changes.
    assert word("folding") == word("bjorck-runtime") == word("bjorck-convergence") == "confirmed"
    # A claim stays open while its cells are missing.
    finished = len(list(RECORDS.folder.glob("cifar-classify/*.json")))
    cells = len(EXPERIMENTS["cifar-classify"].cells("cpu"))
    assert finished == cells or word("cifar-classify") == "undecided"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_gpu_preset_is_one_seed_of_the_paper(name):
    cells = EXPERIMENTS[name].cells("gpu")
    paper = {cell.key: cell for cell in EXPERIMENTS[name].cells("paper")}
    assert len({cell.config["seed"] for cell in cells}) == 1
    assert {cell.key for cell in cells} <= set(paper)
    rest = [c for key, c in paper.items() if key not in {cell.key for cell in cells}]
    assert all(cell.config["seed"] != cells[0].config["seed"] for cell in rest)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_preset_has_cells_of_plain_data(name):
    for preset in PRESETS:
        cells = EXPERIMENTS[name].cells(preset)
        assert cells
        for cell in cells:
            assert json.loads(json.dumps(cell.config)) == cell.config


def without_times(numbers):
    return {k: v for k, v in numbers.items() if not k.startswith(("seconds", "ratio"))}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_smoke_cells_are_finite_repeatable_and_presented(name, smoke_results):
    experiment, results = EXPERIMENTS[name], smoke_results(name)
    for result in results:
        outcome = result.outcome
        assert outcome.numbers and all(map(math.isfinite, outcome.numbers.values()))
        held = [outcome.numbers, outcome.curve, outcome.series]
        text = json.dumps(to_json(held), allow_nan=False)
        assert from_json(json.loads(text)) == to_json(held) and len(text) < 20_000

    # Equal seeds give equal numbers, whatever was drawn before; torch's generator is left alone.
    first = results[-1]
    torch.manual_seed(12345)
    before = torch.get_rng_state()
    again = experiment.run(first.config)
    assert torch.equal(torch.get_rng_state(), before)
    assert without_times(again.numbers) == without_times(first.outcome.numbers) != {}
    assert again.curve == first.outcome.curve and again.series == first.outcome.series

    presentation = experiment.show(results)
    assert presentation.paragraphs and all(presentation.paragraphs)
    for table in presentation.tables:
        assert all(len(row) == len(table.columns) for row in table.rows.values())
        assert any(entry.values for row in table.rows.values() for entry in row)
    figures = list((presentation.figures or {}).values())
    for figure in {id(figure): figure for figure in (*figures[:1], *figures[-1:])}.values():
        assert figure.alt and figure.render("svg").lstrip().startswith(b"<?xml")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_without_results_tables_hold_the_paper_alone(name):
    presentation = EXPERIMENTS[name].show([])
    for table in presentation.tables:
        assert all(not entry.values for row in table.rows.values() for entry in row)
    assert all(figure.alt for figure in (presentation.figures or {}).values())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_committed_record_is_found_by_the_key_of_its_cell(name):
    keys = {cell.key for preset in PRESETS for cell in EXPERIMENTS[name].cells(preset)}
    for path in FILES:
        if path.parent.name == name:
            record = read_record_file(path, Record.from_json)
            assert RECORDS.path(record.cell) == path
            assert record.cell.key in keys, f"{path} belongs to no cell of a preset"


def test_every_committed_record_belongs_to_an_experiment():
    assert FILES and {path.parent.name for path in FILES} <= set(EXPERIMENTS)
