"""The rules of verdicts, applied to the numbers that the paper prints."""

import pytest

from taut_lab.experiments.registry import find_experiment
from taut_lab.framework.experiment import Outcome, Result

ACTIVATIONS = {
    "ReLU": "relu",
    "Maxout": "maxout",
    "MaxMin": "maxmin",
    "GS(4)": "groupsort4",
    "FullSort": "fullsort",
}


def printed(name):
    """Row, column and number of each entry of the first table."""
    table = find_experiment(name).show([]).tables[0]
    for row, entries in table.rows.items():
        for column, entry in zip(table.columns, entries, strict=True):
            if entry.paper is not None:  # rows that are ours alone have none
                yield row, column, entry.paper


def cones(row, column, value):
    dim, depth = (int(word) for word in column.replace(",", "").split()[1::2])
    config = {"activation": ACTIVATIONS[row], "dim": dim, "depth": depth, "seed": 0}
    return [Result(config, Outcome({"objective": value}))]


def searched(config, activation, error):
    # Several settings of equal error, so that every search is complete.
    numbers = {"validation_error": error / 100, "error": error / 100}
    training = {"activation": activation, "hidden": [8]}
    return [
        Result({**config, "seed": 0, "training": {**training, "lr": rate}}, Outcome(numbers))
        for rate in range(8)
    ]


def mnist(row, column, value):
    return searched({"method": row}, ACTIVATIONS[column], value)


def few(row, column, value):
    method, _, activation = row.rpartition(", ")
    images = int(column.removesuffix(" images"))
    return searched({"method": method, "rows": images}, ACTIVATIONS[activation], value)


def cifar(row, column, value):
    method, _, activation = column.partition(", ")
    config = {"method": method, "activation": ACTIVATIONS[activation], "seed": 0}
    return [Result(config, Outcome({"accuracy": value / 100}))]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("prob-dim", cones),
        ("mnist-classify", mnist),
        ("small-mnist", few),
        ("cifar-classify", cifar),
    ],
)
def test_the_rule_confirms_the_numbers_of_the_paper(name, result):
    results = [made for entry in printed(name) for made in result(*entry)]
    checks = find_experiment(name).checks(results)
    assert [check.explain() for check in checks if check.outcome != "holds"] == []


def test_no_printed_error_under_attack_contradicts_the_rule():
    keys = {"clean": "clean_error"}
    results = [
        Result(
            {"row": row, "seed": 0},
            Outcome({keys.get(column, column.lower().replace(" ", "_")): value / 100}),
        )
        for row, column, value in printed("adversarial-robustness")
    ]
    *attacked, certified = find_experiment("adversarial-robustness").checks(results)
    assert [check.explain() for check in attacked if check.outcome != "holds"] == []
    assert certified.missing  # which the paper shows without numbers


def test_the_times_of_the_paper_confirm_its_claim():
    table = find_experiment("bjorck-runtime").show([]).tables[1]
    ratios = [entry.paper for entry in table.rows["speed-up"]]
    numbers = {f"ratio_{k}": ratio for k, ratio in zip((1, 2, 3, 5, 10), ratios, strict=True)}
    results = [Result({"size": 1000, "seed": 0}, Outcome(numbers))]
    assert {check.outcome for check in find_experiment("bjorck-runtime").checks(results)} == {
        "holds"
    }
