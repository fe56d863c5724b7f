"""Critic benchmarks: evaluation, unconstrained critics, records, and the command."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from support import invoke, seeded
from taut.errors import ArgumentError, DamagedFileError
from taut.nn import ConeCritic, Scale
from taut.transport import cone, shells, shifted_gaussians
from taut_lab.benchmarks import unconstrained_critics
from taut_lab.benchmarks.cone_and_coverage_jobs import cone_jobs, coverage_problems
from taut_lab.benchmarks.critic_records import BenchmarkJob, CriticRecords, CriticResult
from taut_lab.benchmarks.funnel_jobs import COUNTS, DIMS, funnel_jobs
from taut_lab.benchmarks.wasserstein import (
    PARTS,
    WassersteinSettings,
    run_wasserstein,
    wasserstein_jobs,
)
from taut_lab.experiments.cone_dimensions import PAPER_VALUES, RECIPES
from taut_lab.experiments.critic_training import evaluate_critic

pytestmark = pytest.mark.slow

QUICK = WassersteinSettings(
    parts=("table1", "funnels"), dims=(2,), counts=(4,), budget_seconds=0.02, quick=True
)
CELL = CriticResult("funnels", "a problem", "cones", truth=2.0, estimate=1.9, lower=1.8, upper=2.5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "record.json"
    return path, run_wasserstein(QUICK, path)


def best_cone(dim, factor=1.0):
    critic = ConeCritic(1, dim)
    with torch.no_grad():
        critic.centres.zero_()
    return critic if factor == 1 else nn.Sequential(critic, Scale(factor))


def test_relative_errors_and_validity_of_bounds():
    assert CELL.relative_error == pytest.approx(-0.05)
    assert CELL.lower_holds and CELL.upper_holds
    assert replace(CELL, lower=2.01).lower_holds is False
    assert replace(CELL, upper=1.99).upper_holds is False
    assert replace(CELL, lower=None).lower_holds is None
    assert replace(CELL, truth=0.0).relative_error is None
    assert replace(CELL, estimate=None).relative_error is None
    assert CriticResult.from_json(json.loads(json.dumps(CELL.to_json()))) == CELL


def test_lower_bounds_of_the_optimal_critic_have_their_confidence_level():
    # The critic is optimal, so nothing but the confidence keeps the bound below the truth.
    problem = shells(3, 2.0, 1.0)
    noisy = replace(
        problem,
        draw_p=lambda n, g: problem.draw_p(n, g) * (0.5 + torch.rand(n, 1, generator=g)),
    )
    lowers = [
        evaluate_critic(best_cone(3), noisy.sample, generator=seeded(s), num_fresh=300).lower
        for s in range(60)
    ]
    # Misses are at most binomial(60, 0.05): 11 or more have probability 0.0002.
    assert sum(lower > problem.distance for lower in lowers) <= 10
    assert 0.7 < min(lowers) and len(set(lowers)) == 60


def test_a_steep_critic_is_divided_by_its_constant():
    problem = shifted_gaussians(2, 3.0)
    flat, steep = (
        evaluate_critic(best_cone(2, k), problem.sample, generator=seeded(0), num_fresh=500)
        for k in (1.0, 8.0)
    )
    assert steep.estimate == pytest.approx(flat.estimate, rel=1e-9)
    assert steep.lower == pytest.approx(flat.lower, rel=1e-6)


def test_the_mean_over_a_single_point_is_exact():
    problem = cone(2)
    centre = torch.zeros(1, 2)
    evaluation = evaluate_critic(
        best_cone(2),
        lambda n, g: (problem.draw_p(n, g), centre),
        generator=seeded(0),
        num_fresh=2000,
    )
    assert evaluation.estimate == pytest.approx(1.0, abs=1e-6)
    assert 0.99 < evaluation.lower <= 1


def test_a_constant_critic_proves_nothing():
    critic = nn.Sequential(best_cone(2), Scale(1e-30))
    far = lambda n, g: (torch.zeros(n, 2), torch.zeros(n, 2))  # noqa: E731
    evaluation = evaluate_critic(critic, far, generator=seeded(0), num_fresh=50)
    assert (evaluation.estimate, evaluation.lower) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("slope", "kind", "excess"),
    [
        (3.0, "WGAN-GP", 4.0),
        (3.0, "WGAN-LP", 4.0),
        (0.25, "WGAN-GP", 0.5625),
        (0.25, "WGAN-LP", 0.0),
    ],
)
def test_penalties_are_those_of_the_papers(slope, kind, excess):
    line = nn.Linear(2, 1)
    with torch.no_grad():
        line.weight.copy_(slope * torch.tensor([[0.6, 0.8]]))
    x, y = torch.randn(2, 5, 2, generator=seeded(0))
    found = unconstrained_critics._excess(line, x, y, kind, seeded(1))
    assert found.item() == pytest.approx(excess, abs=1e-6)
    assert found.requires_grad


@pytest.mark.parametrize("kind", unconstrained_critics.UNCONSTRAINED_CRITICS)
def test_unconstrained_critics_stop_with_the_clock_and_depend_on_the_seed(kind):
    def fit():
        ticks = iter(range(100))
        return unconstrained_critics.fit_unconstrained_critic(
            kind,
            shells(2).sample,
            2,
            seconds=10.0,
            generator=seeded(3),
            width=8,
            batch_size=4,
            clock=lambda: float(next(ticks)),
        )

    (first, steps), (second, _) = fit(), fit()
    assert steps == 9
    points = torch.randn(5, 2, generator=seeded(0))
    assert torch.equal(first(points), second(points))


def test_unconstrained_critics_learn():
    ticks = iter(range(1000))
    critic, _ = unconstrained_critics.fit_unconstrained_critic(
        "WGAN-LP",
        shifted_gaussians(2, 2.0).sample,
        2,
        seconds=200.0,
        generator=seeded(0),
        width=16,
        batch_size=64,
        clock=lambda: float(next(ticks)),
    )
    x, y = shifted_gaussians(2, 2.0).sample(2000, seeded(1))
    assert (critic(x).mean() - critic(y).mean()).item() > 1.0


def test_the_funnel_problems_are_the_published_ones():
    names = [job.name for job in wasserstein_jobs(WassersteinSettings())]
    assert len(names) == len(set(names))
    assert sum(name.startswith("funnels/") for name in names) == 28 * 6
    assert sum(name.startswith("coverage/") for name in names) == 500
    assert sum(name.startswith("grid/") for name in names) == 28
    assert (DIMS, COUNTS) == ((2, 4, 8, 16, 32, 64, 128), (4, 16, 64, 256))
    assert len(list(funnel_jobs(seed=0, peers=False))) == 28 * 3
    assert [job.name.split("/")[1:] for job in cone_jobs(seed=0)] == [
        [activation, str(dim), str(depth)] for activation in RECIPES for dim, depth in PAPER_VALUES
    ]


def test_coverage_problems_include_every_family_dimension_and_size():
    met = [(p.name.split(" ")[0], p.distance, p.dim, n) for p, n in coverage_problems(500)]
    assert {(name, distance) for name, distance, *_ in met} == {
        *((name, distance) for name in ("gaussians", "shells") for distance in (0.0, 0.5)),
        *((name, distance) for name in ("atoms", "mixed") for distance in (0.0, 0.3)),
        ("students", 0.5),
        ("laplaces", 0.5),
    }
    for family in ("gaussians", "shells", "atoms", "students", "mixed"):
        assert {d for name, _, d, _ in met if name == family} == {1, 2, 3, 5, 10, 20, 50}
        assert {n for name, *_, n in met if name == family} == {200, 500, 1000, 2000}


@pytest.mark.parametrize("at", [4, 5, 6, 9, 14, 15, 16, 18, 19])
def test_coverage_problems_have_the_distance_that_they_state(at):
    problem, _ = list(coverage_problems(20))[at]
    x, y = problem.sample(200_000, seeded(0))
    f = problem.potential
    assert (f(x).mean() - f(y).mean()).item() == pytest.approx(problem.distance, abs=0.03)
    a, b = x[:1000].nan_to_num(), y[:1000].nan_to_num().flip(0)
    assert bool(((f(a) - f(b)).abs() <= (a - b).norm(dim=-1) + 1e-5).all())


def test_every_result_is_computed_and_recorded(finished):
    path, records = finished
    assert list(records.results) == [job.name for job in wasserstein_jobs(QUICK)]
    for result in records.results.values():
        assert (
            math.isfinite(result.estimate)
            and result.truth > 0
            and result.cpu > 0
            and result.steps > 0
        )
        assert (result.lower is None) == (
            result.critic in unconstrained_critics.UNCONSTRAINED_CRITICS
        )
        assert result.lower_holds in (True, None)
    assert CriticRecords.read(path).results == records.results
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_interrupted_run_is_resumed(finished, tmp_path):
    path, whole = finished
    content = json.loads(path.read_text())
    names = list(content["results"])
    del content["results"][names[2]], content["results"][names[-1]]
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(content))
    made, heard = [], []
    records = run_wasserstein(
        QUICK,
        cut,
        before=lambda name, done, left: heard.append((done, left)),
        after=lambda name, result: made.append(name),
    )
    assert made == [names[2], names[-1]]
    assert all(0 <= done < 1 and left > 0 for done, left in heard)
    kept = [name for name in names if name not in made]
    assert all(records.results[name] == whole.results[name] for name in kept)
    # Where steps and not seconds decide, the same seed makes the same result.
    again, before = records.results[names[2]], whole.results[names[2]]
    assert (again.estimate, again.lower) == (before.estimate, before.lower)


def test_finished_results_survive_a_failure(tmp_path, monkeypatch):
    path = tmp_path / "record.json"

    def broken():
        raise RuntimeError("the power went out")

    jobs = [BenchmarkJob("one", 1.0, lambda: CELL), BenchmarkJob("two", 1.0, broken)]
    monkeypatch.setattr("taut_lab.benchmarks.wasserstein.wasserstein_jobs", lambda settings: jobs)
    with pytest.raises(RuntimeError, match="power"):
        run_wasserstein(QUICK, path)
    assert CriticRecords.read(path).results == {"one": CELL}


def test_a_record_with_other_settings_is_refused(finished):
    with pytest.raises(ArgumentError, match="Use the same settings, or another file"):
        run_wasserstein(replace(QUICK, seed=1), finished[0])


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "kind": "taut bench wasserstein"}']
)
def test_files_that_are_not_records_are_refused(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(DamagedFileError, match="not a complete record"):
        CriticRecords.read(path)


def test_wrong_settings_are_explained():
    with pytest.raises(ArgumentError, match="`parts` must be one of 'table1'"):
        run_wasserstein(replace(QUICK, parts=("table2",)))
    with pytest.raises(ArgumentError, match="`budget_seconds`"):
        run_wasserstein(replace(QUICK, budget_seconds=-1.0))


def test_the_run_restores_random_state_and_threads():
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    run_wasserstein(replace(QUICK, parts=("table1",)))
    found = torch.rand(3)
    torch.manual_seed(7)
    assert torch.equal(found, torch.rand(3))
    assert torch.get_num_threads() == threads


def test_the_command_measures_resumes_and_shows(tmp_path):
    pytest.importorskip("sklearn")
    pytest.importorskip("ot")
    path = tmp_path / "record.json"
    arguments = ["bench", "wasserstein", "--quick", "--dim", "2", "--num-funnels", "4"]
    arguments += ["--budget-seconds", "0.02", "--out", path]
    result = invoke(*arguments, code=0)
    written = path.read_text()
    invoke(*arguments, code=0)
    assert path.read_text() == written
    shown = invoke("bench", "wasserstein", "--show", path, code=0)
    for text in ("fullsort", "cones, more steps", "WGAN-GP", "no valid bound", "distance zero"):
        assert text in shown.output
    assert shown.output.strip() in result.output
    parts = {result.part: result for result in CriticRecords.read(path).results.values()}
    assert set(parts) == set(PARTS)
    for result in CriticRecords.read(path).results.values():
        if result.part == "real":
            assert result.lower_holds and result.upper_holds is not False
