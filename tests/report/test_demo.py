"""The demonstration on tiny networks: every number and figure is in the report."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from taut.cli.demo import demo
from taut.report.demo import LABELS, demo_page
from taut.report.demo_run import ACTIVATIONS, DemoRun, demo_tasks, run_demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run() -> DemoRun:
    return run_demo(seed=1, quick=True)


def test_critics_never_exceed_the_distance(run: DemoRun) -> None:
    for record in run.tasks:
        # In the plane the sample may favour one of the three points: allow for chance alone.
        chance = 1e-5 if record.task.problem.dim == 1 else 0.1
        for critic in record.critics:
            assert critic.fit.estimate.value <= record.task.problem.distance + chance
            assert critic.slopes.max() <= 1 + 1e-4


def test_sorting_beats_relu(run: DemoRun) -> None:
    for record in run.tasks:
        relu, maxmin, _ = record.critics
        assert maxmin.fit.estimate.value > relu.fit.estimate.value + 0.1
        assert maxmin.mean_slope > relu.mean_slope + 0.1


def test_points_avoid_the_kinks(run: DemoRun) -> None:
    for record in run.tasks:
        height = record.task.problem.potential(record.task.points)
        assert record.critics[0].values.shape == height.shape
        tip = 0.0 if record.task.problem.dim == 1 else 1.0
        assert (height != tip).all()


def test_the_seed_determines_the_result_and_the_global_generator_is_restored(run: DemoRun) -> None:
    tasks = demo_tasks(quick=True)[:1]
    state = torch.random.get_rng_state()
    again = run_demo(seed=1, tasks=tasks, quick=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    other = run_demo(seed=2, tasks=tasks, quick=True)
    fits = [[critic.fit for critic in some.tasks[0].critics] for some in (run, again, other)]
    assert fits[0] == fits[1] != fits[2]
    radii = [some.digits.certificates.radius for some in (run, again, other)]
    assert torch.equal(radii[0], radii[1]) and not torch.equal(radii[0], radii[2])


def test_page_shows_every_critic(run: DemoRun) -> None:
    html = demo_page(run).render()
    # Curves, cones, drift; then one curve, five galleries, and four of one picture.
    assert html.count("<img ") == 2 + 4 + 1 + 1 + 5 + 4
    assert "http" not in re.sub(r'src="data:[^"]*"', "", html)
    for record in run.tasks:
        for critic in record.critics:
            assert f"<td>{critic.fit.estimate.value:.3f}<" in html
            assert f"<td>{critic.mean_slope:.3f}<" in html
    for name in (*LABELS.values(), "Truth", "taut demo --seed 1", torch.__version__):
        assert name in html


def test_verdicts_follow_what_was_measured(run: DemoRun) -> None:
    def verdicts(run: DemoRun) -> list[str]:
        return re.findall(
            r'<small class="(?:better|worse)">(holds|fails)<', demo_page(run).render()
        )

    inside = [found.lower.value <= shift <= found.upper.value for shift, found in run.drift.items()]
    held = verdicts(run)
    assert len(held) == 5 and held[0] == held[3] == held[4] == "holds"
    assert held[1] == ("holds" if all(inside) else "fails")
    attacked = replace(run.digits.attacked, violations=("a certificate was violated",))
    digits = replace(run.digits, checked=None, attacked=attacked)
    assert verdicts(replace(run, digits=digits))[3:] == ["fails", "fails"]


def test_page_shows_certified_and_attacked_accuracy(run: DemoRun) -> None:
    html, found = demo_page(run).render(), run.digits.attacked
    for radius in found.radii:
        # No attack may succeed within a certified radius.
        assert found.certified(radius) <= found.accuracy(radius)
        assert f"<td>{100 * found.certified(radius):.1f}<" in html
        assert f"<td>{100 * found.accuracy(radius, 'pgd'):.1f}<" in html
    assert not found.violations
    assert "The same slope as a certificate" in html


def test_command_prints_a_table_and_writes_the_page(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(
            demo, ["--quick", "--seed", "1", "--out", str(tmp_path / "out")]
        )
    finally:
        torch.set_num_threads(threads)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "index.html").is_file()
    for activation in ACTIVATIONS:
        assert LABELS[activation] in result.output
    assert "Truth" in result.output and "under PGD" in result.output
    assert "index.html" in result.output
