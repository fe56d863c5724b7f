"""Monitors: the false-alarm rate of whole runs, drift that is found, files, and mixed tables."""

import math
import multiprocessing
import time

import numpy as np
import pytest
import torch

from taut.checker import check
from taut.errors import ArgumentError, DamagedFileError, DataError
from taut.transport import fit_monitor, hold_monitor, load_monitor, save_monitor
from taut.transport.drift_evidence import (
    log_evidence,
    log_reference,
    log_wealth,
    make_nodes,
    new_wealth,
)

pd = pytest.importorskip("pandas")


def follow(draws, batches):
    """Logarithms of the evidence after each batch, `(batches, k)`."""
    nodes = make_nodes(draws)
    reference, wealth, found = log_reference(draws, nodes), new_wealth(nodes), []
    for number, batch in enumerate(batches, 1):
        wealth = log_wealth(wealth, batch, nodes, number)
        found.append(log_evidence(reference, wealth, number))
    return torch.stack(found)


def naive_evidence(draws, batches, m):
    """R(m) K_t(m) as the theorem writes them, one score, in numpy."""
    shares = [0.0, *(0.75 / 2**j for j in range(9))]
    reference = np.mean([np.prod(1 - b + b * (1 - draws) / (1 - m)) for b in shares])
    stakes = [0.75 / 2**j for j in range(6)]
    total, last = 0.0, len(batches)
    for start in range(1, last + 1):
        rows = np.concatenate(batches[start - 1 :])
        products = [np.prod(1 - b + b * rows / m) for b in stakes]
        total += np.mean(products) / (start * (start + 1))
    return reference * (total + 1 / (last + 1))


@pytest.mark.parametrize("law", ["uniform", "rare", "constant", "skewed"])
def test_evidence_is_below_that_of_every_candidate_mean(law):
    rng = np.random.default_rng(0)

    def draw(n):
        match law:
            case "uniform":
                return rng.random(n)
            case "rare":
                return (rng.random(n) < 0.03).astype(float)
            case "constant":
                return np.full(n, 0.5)
        return rng.random(n) ** 6

    draws, batches = draw(60), [draw(20) * 0.9 + 0.1 for _ in range(4)]
    columns = [torch.tensor(part)[:, None] for part in (draws, *batches)]
    found = follow(columns[0], columns[1:])[-1].exp().item()
    candidates = np.concatenate([np.geomspace(2e-3, 0.5, 400), np.linspace(0.5, 0.999, 200)])
    values = [naive_evidence(draws, batches, m) for m in candidates]
    assert found <= min(values) * (1 + 1e-9)
    # The nodes lose little: a bound that is always 0 would be of no use.
    assert found >= 0.3 * min(values)


@pytest.mark.parametrize("rows", [8, 200])
@pytest.mark.parametrize("law", ["uniform", "rare", "two values", "sorted reference"])
def test_false_alarms_over_whole_runs_are_as_rare_as_promised(rows, law):
    generator = torch.Generator().manual_seed(rows)

    def draw(n, k):
        unit = torch.rand(n, k, generator=generator, dtype=torch.float64)
        match law:
            case "rare":
                return (unit < 1 / rows).double()
            case "two values":
                return (unit < 0.5).double()
        return unit

    runs = 1000
    reference = draw(rows, runs)
    if law == "sorted reference":
        reference = reference.sort(0).values
    evidence = follow(reference, [draw(10, runs) for _ in range(40)])
    alarms = (evidence.amax(0) >= math.log(10)).double().mean().item()
    # Expected at most 0.1; four standard errors above it.
    assert alarms <= 0.1 + 4 * math.sqrt(0.1 * 0.9 / runs)


def test_a_tolerated_drift_raises_no_alarm_and_a_larger_one_does():
    generator = torch.Generator().manual_seed(1)

    def draw(n, shift):
        rows = torch.randn(n, 3, generator=generator)
        rows[:, 0] += shift
        return rows

    monitors = [fit_monitor(draw(4000, 0.0), tolerance=0.5, scaling="none") for _ in range(8)]
    for monitor in monitors:
        for _ in range(30):
            monitor.update(draw(200, 0.49))
    assert sum(monitor.alarm for monitor in monitors) <= 2
    for _ in range(4):
        found = monitors[0].update(draw(200, 1.0))
    assert found.alarm
    assert found.changes[0].what == "column 0 higher"
    assert found.changes[0].difference == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda x: x + torch.tensor([0.0, 0.4]), "b higher"),
        (lambda x: x * torch.tensor([1.5, 1.0]), "a more spread out"),
        (lambda x: x @ torch.tensor([[1.0, 0.7], [0.0, 0.71]]), "principal component"),
        (lambda x: torch.where(torch.rand(len(x), 1) < 0.1, 8.0, x), "farther"),
    ],
)
def test_kinds_of_drift_are_found_and_named(change, what):
    generator = torch.Generator().manual_seed(2)

    def frame(rows):
        return pd.DataFrame(rows.numpy(), columns=["a", "b"])

    monitor = fit_monitor(frame(torch.randn(3000, 2, generator=generator)))
    for _ in range(10):
        assert not monitor.update(frame(torch.randn(200, 2, generator=generator))).alarm
    for _ in range(5):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            rows = change(torch.randn(200, 2, generator=generator))
        found = monitor.update(frame(rows))
    assert found.alarm
    assert found.p_value < 0.01
    assert any(what in change.what for change in found.changes)


def mixed(rng, n, share=0.5, gaps=0.0):
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 9, n),
            "colour": rng.choice(["red", "blue", "tan"], n, p=[share, 0.9 - share, 0.1]),
            "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 30, n), "D"),
        }
    )
    frame.loc[rng.random(n) < gaps, "age"] = np.nan
    return frame


@pytest.mark.parametrize(
    ("drift", "what"),
    [
        ({"share": 0.8}, "colour=red more often"),
        ({"gaps": 0.2}, "age missing more often"),
    ],
)
def test_mixed_tables_from_frames_and_files(tmp_path, drift, what):
    rng = np.random.default_rng(3)
    monitor = fit_monitor(mixed(rng, 2000))
    path = tmp_path / "watch.safetensors"
    for _ in range(3):
        found = monitor.update(mixed(rng, 300)[["day", "colour", "age"]])
    assert not found.alarm
    save_monitor(monitor, path)
    again = load_monitor(path)
    assert again.batches == monitor.batches
    for _ in range(3):
        batch = mixed(rng, 300, **drift)
        found, other = monitor.update(batch), again.update(batch)
        assert found == other
    assert found.alarm
    assert what in [change.what for change in found.changes]


def test_a_category_that_is_new_is_seen():
    rng = np.random.default_rng(4)
    monitor = fit_monitor(mixed(rng, 2000))
    for _ in range(3):
        batch = mixed(rng, 300)
        batch.loc[rng.random(300) < 0.3, "colour"] = "green"
        found = monitor.update(batch)
    assert found.alarm


def test_what_is_refused(tmp_path):
    rng = np.random.default_rng(5)
    monitor = fit_monitor(mixed(rng, 100))
    batch = mixed(rng, 50)
    monitor.update(batch, "monday")
    with pytest.raises(DataError, match="batch 2: .* the rows of batch 'monday' again"):
        monitor.update(batch)
    with pytest.raises(DataError, match="none called 'age'"):
        monitor.update(batch.drop(columns="age"))
    with pytest.raises(DataError, match="must have the 2 columns that"):
        fit_monitor(torch.randn(50, 2)).update(torch.randn(50, 3))
    with pytest.raises(ArgumentError, match="`false_alarm_rate` must lie strictly"):
        fit_monitor(torch.randn(50, 2), false_alarm_rate=1.0)
    with pytest.raises(ArgumentError, match="`tolerance`"):
        fit_monitor(torch.randn(50, 2), tolerance=-1.0)
    with pytest.raises(ArgumentError, match="at least 4 rows"):
        fit_monitor(torch.randn(3, 2))
    with pytest.raises(ArgumentError, match="`encoding` needs a table with columns"):
        fit_monitor(torch.randn(50, 2), encoding={"drop": ["a"]})
    with pytest.raises(DamagedFileError, match="must hold a monitor"):
        path = tmp_path / "critic.safetensors"
        import taut

        taut.wasserstein(torch.rand(40), torch.rand(40) + 1).save(path)
        load_monitor(path)


def test_one_column_and_many_survive_a_file(tmp_path):
    generator = torch.Generator().manual_seed(6)
    for dim in (1, 70):
        monitor = fit_monitor(torch.randn(300, dim, generator=generator), scaling="robust")
        save_monitor(monitor, tmp_path / "watch.safetensors")
        # The independent checker proves the distance from the reference.
        assert check((tmp_path / "watch.safetensors").read_bytes())
        batch = torch.randn(100, dim, generator=generator)
        assert load_monitor(tmp_path / "watch.safetensors").update(batch) == monitor.update(batch)
        names = monitor.scores.names(monitor.features, [False] * dim)
        assert len(set(names)) == len(names) == len(monitor.nodes)


def test_dependent_features_are_no_axes_of_roundoff():
    """The features of a category sum to a constant: along that axis there is nothing to see."""
    rng = np.random.default_rng(0)

    def rows(shift):
        one = np.eye(3)[rng.integers(0, 3, 400)]
        return torch.tensor(np.hstack([one, rng.normal(shift, 1, (400, 2))]))

    monitor = fit_monitor(rows(0.0))
    assert len(monitor.scores.axes) == 4
    found = monitor.update(rows(1.0))
    assert found.alarm and abs(found.changes[0].difference) > 0.1


def test_a_window_tolerates_slow_drift_and_finds_sudden_drift(tmp_path):
    rng, path = np.random.default_rng(7), tmp_path / "watch.safetensors"

    def batch(shift):
        return torch.tensor(rng.normal(shift, 1, (200, 2)))

    reference = torch.tensor(rng.normal(size=(2000, 2)))
    fixed, moving = fit_monitor(reference), fit_monitor(reference, window=4)
    for step in range(24):
        rows = batch(0.02 * step)
        fixed.update(rows)
        moving.update(rows)
        save_monitor(moving, path)
        moving = load_monitor(path)
    assert fixed.alarm and not moving.alarm
    assert (moving.moves, moving.start, moving.rows, len(moving.recent)) == (6, 24, 800, 0)
    for _ in range(3):
        moving.update(batch(1.5))
    assert moving.alarm
    # After an alarm the reference stays.
    for _ in range(4):
        moving.update(batch(1.5))
    assert moving.moves == 6 and moving.alarm
    with pytest.raises(ArgumentError, match="`window`"):
        fit_monitor(reference, window=0)


@pytest.mark.slow
def test_false_alarms_of_a_moving_reference_are_as_rare_as_promised():
    rng, alarms = np.random.default_rng(8), 0
    for _ in range(60):
        monitor = fit_monitor(
            torch.tensor(rng.normal(size=(80, 2))), window=2, false_alarm_rate=0.2
        )
        for _ in range(12):
            monitor.update(torch.tensor(rng.normal(size=(40, 2))))
        alarms += monitor.alarm
    assert alarms <= 60 * 0.2


def test_a_moving_reference_shares_out_the_false_alarm_rate():
    """The evidence of the k-th reference is that of a new monitor over k (k + 1)."""
    rng = np.random.default_rng(9)
    rows = [torch.tensor(rng.normal(size=(100, 1))) for _ in range(3)]
    plain, moving = fit_monitor(rows[0]), fit_monitor(rows[0], window=1)
    assert moving.update(rows[1]).evidence == pytest.approx(plain.update(rows[1]).evidence / 2)
    assert fit_monitor(rows[1], seed=1).update(rows[2]).evidence / 6 == pytest.approx(
        moving.update(rows[2]).evidence
    )


def add_batch(path, seed):
    with hold_monitor(path):
        monitor = load_monitor(path)
        time.sleep(0.2)
        monitor.update(torch.randn(20, 1, generator=torch.Generator().manual_seed(seed)), str(seed))
        save_monitor(monitor, path)


def test_processes_that_update_one_file_at_a_time_lose_no_batch(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "watch.safetensors"
    save_monitor(fit_monitor(torch.randn(50, 1, generator=torch.Generator().manual_seed(0))), path)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_batch, args=(path, seed)) for seed in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert {batch.name for batch in load_monitor(path).batches} == {"1", "2"}


def test_few_rows_of_few_categories_may_recur():
    colours = pd.DataFrame({"colour": ["red", "tan"] * 50})
    monitor = fit_monitor(colours)
    for _ in range(3):
        monitor.update(colours[:8])
    monitor.update(colours[:40])
    with pytest.raises(DataError, match="the rows of batch '4' again"):
        monitor.update(colours[:40])


def test_the_share_of_a_category_is_named_once():
    rng = np.random.default_rng(12)
    draw = lambda p: pd.DataFrame({"colour": rng.choice(["red", "tan", "blue"], 400, p=p)})  # noqa: E731
    changes = fit_monitor(draw([0.4, 0.3, 0.3])).update(draw([0.6, 0.2, 0.2])).changes
    assert changes[0].what == "colour=red more often"
    assert not any("spread" in change.what and "colour" in change.what for change in changes)


def test_running_numbers_are_noted():
    rng = np.random.default_rng(10)
    frame = mixed(rng, 100).assign(serial=rng.permutation(100), stamp=np.arange(100) ** 2)
    (note,) = fit_monitor(frame).notes
    assert "'serial'" in note and "'stamp'" in note and "'age'" not in note
    assert fit_monitor(mixed(rng, 100)).notes == ()
