"""Experiments with known records, so that tests know what a page must show."""

from pathlib import Path

from taut.plotting import Figure
from taut_lab.framework import Experiment, Outcome, Presentation, ResultTable, TableEntry
from taut_lab.framework.records import Record, Records

CODE = {"taut": "9.8.7", "commit": "abcdef0123456789", "dirty": False}
MACHINE = {"processor": "abacus", "cores": 3, "system": "wood", "load": [0.25, 0.5, 1.0]}


def _run(config):
    raise AssertionError("a page computes nothing")


def _paint(results, axes):
    axes.plot([r.outcome.numbers["error"] for r in results], label="errors")
    axes.legend()


def _show(results):
    def entry(net, number, paper):
        values = [r.outcome.numbers[number] for r in results if r.config["net"]["act"] == net]
        return TableEntry(values, paper)

    names = {"relu": "ReLU & <b>", "maxmin": "Max_Min"}
    errors = {
        name: [entry(net, "error", 5.0), entry(net, "error", None)] for net, name in names.items()
    }
    slopes = {name: [entry(net, "slope", 0.5)] for net, name in names.items()}
    tables = [
        ResultTable("Errors", ["test", "again"], errors, better="lower", digits=1, unit="%"),
        ResultTable("Slopes", ["mean"], slopes, note="A <note>."),
    ]
    figure = Figure(lambda axes: _paint(results, axes), alt="Errors by cell.", title="Curve")
    return Presentation(tables, {"sample-curve": figure}, ["What <came> out."])


def _configs(preset):
    seeds = {"smoke": 1, "cpu": 2, "paper": 4}[preset]
    steps = {"smoke": 1, "cpu": 10, "paper": 100}[preset]
    for seed in range(seeds):
        for act in ("relu", "maxmin"):
            yield {"net": {"act": act, "hidden": [8, 8]}, "steps": steps, "seed": seed}


def on_mnist(preset):
    return [{**config, "data": "mnist"} for config in _configs(preset)]


def sample(name: str = "sample", **changes) -> Experiment:
    claim = "Sorting <wins>."
    about = {"label": f"tab:{name}", "title": f"A {name} & more", "claim": claim}
    parts = {"configs": _configs, "run": _run, "show": _show}
    return Experiment(name, **{**about, **parts, **changes})


# Activation -> (error, slope) of each seed. Errors are below the paper's 5 for one net alone.
FOUND = {"relu": [(7.0, 0.25), (8.0, 0.75)], "maxmin": [(4.0, 1.0), (3.0, 1.0)]}


def write_records(experiment: Experiment, preset: str, folder: Path) -> list[Path]:
    paths = []
    for place, cell in enumerate(experiment.cells(preset)):
        error, slope = FOUND[cell.config["net"]["act"]][cell.config["seed"]]
        outcome = Outcome({"error": error, "slope": slope})
        date = f"2026-01-0{1 + place}T00:00:00+00:00"
        record = Record(cell, outcome, 70.0, 30.0, CODE, {"python": "3"}, MACHINE, date)
        paths.append(Records(folder).write(record))
    return paths
