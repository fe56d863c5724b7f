"""`taut bench layers` on tiny sizes: the run, its record, and the command."""

import json
from dataclasses import replace

import pytest
import torch

from support import invoke
from taut.errors import ArgumentError
from taut_lab.benchmarks import Comparison, LayerSettings, TimingEntry, TimingRecord, run_layers
from taut_lab.framework.timing import Timing

TINY = LayerSettings(
    widths=(4, 6),
    batches=(3,),
    rates=(1e-3, 3e-3),
    peers=False,
    activation_size=8,
    bjorck_size=4,
    bjorck_iterations=(1, 2),
    rounds=2,
    min_rounds=1,
    warmup=1,
)


@pytest.fixture(scope="module")
def record():
    return run_layers(TINY)


def timing(name, median):
    return Timing.of(name, [] if median is None else [median])


def test_ratios_are_those_of_medians():
    entries = tuple(TimingEntry(timing(*pair)) for pair in (("a", 2.0), ("b", 5.0), ("c", None)))
    comparison = Comparison("networks", {}, "a", entries)
    assert [comparison.ratio(name) for name in "abc"] == [1.0, 2.5, None]
    assert comparison.ratio("nobody") is None
    assert replace(comparison, baseline="c").ratio("a") is None


def test_every_comparison_is_run(record):
    assert [(comparison.kind, dict(comparison.sizes)) for comparison in record.comparisons] == [
        *(
            ("networks", {"width": width, "batch": 3, "rate": rate})
            for width in (4, 6)
            for rate in (1e-3, 3e-3)
        ),
        ("activations", {"batch": 8, "width": 8}),
        ("bjorck", {"size": 4}),
    ]
    for comparison in record.comparisons:
        assert comparison.ratio(comparison.baseline) == 1.0
        for entry in comparison.entries:
            assert entry.timing.failure is None and entry.timing.rounds >= 1
            assert (entry.error is not None) == (comparison.kind == "networks")


def test_constrained_layers_have_no_excess(record):
    for comparison in record.comparisons[:4]:
        excess = {entry.timing.name: entry.excess for entry in comparison.entries}
        assert all(value <= 0 for name, value in excess.items() if name.startswith("taut"))


def test_the_record_has_its_provenance(record):
    assert set(record.versions) == {"python", "taut", "torch", "deel-torchlip", "orthogonium"}
    assert record.versions["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert record.machine["processor"] and record.machine["cores"] >= 1
    assert record.settings["rounds"] == 2 and record.date[:2] == "20"


def test_a_record_is_read_as_it_was_written(record, tmp_path):
    path = tmp_path / "deep" / "record.json"
    record.write(path)
    read = TimingRecord.read(path)
    assert read.comparisons == record.comparisons and read.date == record.date
    assert (read.machine, read.versions) == (record.machine, record.versions)
    read.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()
    plain = json.loads(path.read_text())
    assert plain["comparisons"][0]["entries"][0]["ratio"] == 1.0


def test_the_run_restores_random_state_and_threads():
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    run_layers(replace(TINY, widths=(4,)))
    found = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(found, torch.rand(3))
    assert torch.get_num_threads() == threads


def test_an_unknown_clock_is_explained():
    with pytest.raises(ArgumentError, match="`clock` must be one of 'cpu', 'wall'"):
        run_layers(replace(TINY, clock="sun"))


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ("layers --no-peers", ("taut OrthonormalLinear", "x plain", "taut MaxMin", "paper: full")),
        ("conv --no-peers", ("taut OrthonormalConv2d", "error")),
        ("distances", ("taut, compiled, p = 8",)),
    ],
)
def test_the_command_measures_writes_and_shows(words, texts, tmp_path):
    path = tmp_path / "record.json"
    result = invoke("bench", *words.split(), "--quick", "--out", path, code=0)
    shown = invoke("bench", words.split()[0], "--show", path, code=0)
    for text in texts:
        assert text in result.output and text in shown.output
    # The same tables: a record holds all that is printed.
    assert shown.output.strip() in result.output


def test_failures_and_missing_libraries_are_printed(record, tmp_path):
    broken = Timing.of("peer Linear", [], "RuntimeError: [x] it broke")
    diverged = TimingEntry(timing("peer Other", 1.0), None, None)
    comparisons = (
        replace(record.comparisons[0], baseline="plain", entries=(TimingEntry(broken), diverged)),
        *record.comparisons[1:],
    )
    path = tmp_path / "record.json"
    replace(record, comparisons=comparisons, missing=("orthogonium: not installed",)).write(path)
    result = invoke("bench", "layers", "--show", path, code=0)
    assert "orthogonium: not installed" in result.output
    assert "not finite" in result.output and "failed" in result.output
    assert "RuntimeError: [x] it broke" in result.output


def test_a_file_that_is_not_a_record_is_an_error_of_one_line(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    result = invoke("bench", "layers", "--show", path, code=2)
    assert "is not a complete record" in result.stderr
