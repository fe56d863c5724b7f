"""What holds for every experiment of the registry, and for every committed record."""

import json
import math
from pathlib import Path

import pytest
import torch

import taut_lab.experiments
from taut_lab.experiments.registry import EXPERIMENTS
from taut_lab.framework.experiment import PRESETS
from taut_lab.framework.record_files import from_json, read_record_file, to_json
from taut_lab.framework.records import Record, Records

RECORDS = Records(Path(__file__).parents[3] / "records")
FILES = sorted(RECORDS.folder.glob("*/*.json"))
ORDER = """
folding absolute-value three-cones prob-dim jacobian-norms activation-statistics generator-distance
adversarial-robustness interpretable-gradients network-views bjorck-convergence
bjorck-against-spectral bjorck-runtime mnist-classify small-mnist cifar-classify dynamical-isometry
gan-samples tradeoff
"""


def test_every_module_with_an_experiment_is_registered_in_the_order_of_the_paper():
    folder = Path(taut_lab.experiments.__file__).parent
    modules = [p.stem for p in folder.glob("*.py") if "\nEXPERIMENT = " in p.read_text()]
    assert sorted(modules) == sorted(name.replace("-", "_") for name in EXPERIMENTS)
    assert list(EXPERIMENTS) == ORDER.split()


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
