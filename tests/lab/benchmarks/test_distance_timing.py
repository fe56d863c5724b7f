"""`taut bench distances` on tiny sizes: the run, its record, and the command."""

from click.testing import CliRunner

from taut.cli.main import main
from taut_lab.benchmarks import DistanceSettings, TimingRecord, run_distances
from taut_lab.benchmarks.timed_distances import DENSE

TINY = DistanceSettings(batch=5, width=7, exponents=(8, 16), rounds=2, min_rounds=1, warmup=1)


def test_every_way_is_timed_for_every_exponent():
    (comparison,) = run_distances(TINY).comparisons
    assert comparison.kind == "distances" and comparison.ratio(DENSE) == 1
    names = {entry.timing.name for entry in comparison.entries}
    ways = ("taut, compiled", "taut, in chunks", "torch cdist")
    assert names == {DENSE, *(f"{way}, p = {p}" for way in ways for p in ("8", "16", "inf"))}
    assert all(entry.timing.failure is None for entry in comparison.entries)


def test_the_command_writes_a_record_and_shows_it(tmp_path):
    path = tmp_path / "record.json"
    run = CliRunner().invoke(main, ["bench", "distances", "--quick", "--out", str(path)])
    assert run.exit_code == 0, run.output
    assert len(TimingRecord.read(path).comparisons) == 1
    shown = CliRunner().invoke(main, ["bench", "distances", "--show", str(path)])
    assert shown.exit_code == 0 and "taut, compiled, p = 8" in shown.output
