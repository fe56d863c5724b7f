"""A stream gives the answer that the same rows in memory give, and is never held whole."""

from typing import Any

import numpy as np
import pytest
import torch

from taut.data import TableStream, as_table
from taut.errors import ArgumentError, DataError
from taut.transport import input_data, split, wasserstein
from taut.transport.distance_bounds import Scores
from taut.transport.input_data import BatchStream, open_dataset
from taut.transport.split import score_held_out, split_rows

QUICK: dict[str, Any] = {"critics": ("cones",), "num_steps": 20, "num_permutations": 19}


class Batches:
    """As much of a loader as the estimator needs."""

    def __init__(self, rows, size=7, shuffle=False):
        self.rows, self.size, self.shuffle = rows, size, shuffle
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        rows = self.rows.flip(0) if self.shuffle and self.passes % 2 else self.rows
        yield from rows.split(self.size)


@pytest.fixture
def pair():
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 90, 3, generator=g, dtype=torch.float64)
    return x + 1, y


def test_streams_and_tables_give_one_answer(pair, tmp_path):
    x, y = pair
    np.save(tmp_path / "x.npy", x.numpy())
    stream = TableStream(tmp_path / "x.npy", batch_rows=11)
    first, *others = (
        wasserstein(data, y, **QUICK)
        for data in (x, as_table(x), stream, Batches(x), (part for part in x.split(4)))
    )
    assert first.lower.value > 0
    for other in others:
        assert (other.lower.value, other.upper.value) == (first.lower.value, first.upper.value)
        assert torch.equal(other.scores[0], first.scores[0])
        assert other.rows == (90, 90)


def test_long_samples_train_on_a_part_and_score_all_the_rest(pair, monkeypatch):
    monkeypatch.setattr(split, "_MOST_TRAINING", 20)
    monkeypatch.setattr(split, "_MOST_VALIDATION", 5)
    monkeypatch.setattr(split, "_MOST_RESERVE", 10)
    x, y = pair
    table = wasserstein(x, y, **QUICK)
    stream = wasserstein(Batches(x, 3), Batches(y, 50), **QUICK)
    assert [len(side) for side in table.scores] == [65, 65]
    assert table.notes[1].startswith(
        "critics were trained on 20 randomly drawn rows of the 90 of x"
    )
    assert stream.lower.value == table.lower.value and stream.upper.value == table.upper.value


def test_no_row_that_trains_or_chooses_is_held_out(pair, monkeypatch):
    monkeypatch.setattr(split, "_MOST_TRAINING", 20)
    x, _ = pair
    side = open_dataset(Batches(x), "x")
    assert isinstance(side, BatchStream)
    draw = split_rows(side, seed=3, index=0)
    held = score_held_out(side, draw, lambda rows: Scores(rows[:, 0], 0 * rows[:, 0])).values
    seen = torch.cat([draw.train, draw.validation])[:, 0]
    assert len(draw.train) == 20 and len(draw.validation) == 9
    assert sorted([*held.tolist(), *seen.tolist()]) == sorted(x[:, 0].tolist())
    assert not set(held.tolist()) & set(seen.tolist())
    # Rows outside of both are kept for transport.
    assert set(draw.reserve[:, 0].tolist()) <= set(held.tolist())


def test_every_row_trains_equally_often(monkeypatch):
    monkeypatch.setattr(split, "_MOST_TRAINING", 10)
    monkeypatch.setattr(split, "_MOST_VALIDATION", 1)
    monkeypatch.setattr(split, "_MOST_RESERVE", 1)
    rows = torch.arange(50.0).reshape(50, 1)
    counts = torch.zeros(50)
    for seed in range(400):
        draw = split_rows(open_dataset(Batches(rows), "x"), seed=seed, index=0)
        counts[draw.train[:, 0].long()] += 1
    # Binomial(400, 1/5): mean 80, deviation 8; six deviations at 50 rows.
    assert counts.sum() == 4000 and bool(((counts - 80).abs() < 48).all())


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("seed", [0, 1])
def test_rows_drawn_with_the_same_seed_are_split_independently_of_their_values(seed, index):
    for entropy in (seed, [seed, index], [seed, 1 - index]):
        rows = torch.from_numpy(np.random.default_rng(entropy).random((2000, 1)))
        drawn = split_rows(open_dataset(Batches(rows), "x"), seed=seed, index=index)
        held = rows[~drawn.used]
        error = rows.std() * (1 / len(drawn.train) + 1 / len(held)) ** 0.5
        assert abs(drawn.train.mean() - held.mean()) < 4 * error


def test_a_stream_that_changes_between_passes_is_refused(pair):
    x, y = pair
    with pytest.raises(DataError, match="same rows in the same order at every pass"):
        wasserstein(Batches(x, shuffle=True), y, **QUICK)


def test_memory_of_a_long_stream_is_that_of_its_sample(monkeypatch):
    monkeypatch.setattr(split, "_MOST_TRAINING", 100)
    monkeypatch.setattr(split, "_MOST_VALIDATION", 10)
    monkeypatch.setattr(split, "_MOST_RESERVE", 10)
    largest = 0

    class Watched(split._SmallestKeys):
        def offer(self, keys, start, points):
            nonlocal largest
            super().offer(keys, start, points)
            largest = max(largest, sum(len(points) for *_, points in self.parts))

    monkeypatch.setattr(split, "_SmallestKeys", Watched)
    split_rows(open_dataset(Batches(torch.zeros(20_000, 2), 50), "x"), seed=0, index=0)
    assert largest <= 2 * 120 + 50


def test_finite_sets_that_do_not_fit_into_memory_are_refused(pair, monkeypatch):
    x, y = pair
    assert wasserstein(Batches(x), y, finite=True).gap < 1e-6
    monkeypatch.setattr(input_data, "_MOST_CELLS", 150)
    with pytest.raises(ArgumentError, match="at most 50 rows of 3 columns; got more in x"):
        wasserstein(Batches(x), y, finite=True)


def test_batches_of_other_columns_and_no_batches_are_refused(pair):
    x, y = pair
    with pytest.raises(DataError, match="every batch must have the columns of the first, 3"):
        wasserstein(Odd([x, x[:, :2]]), y, **QUICK)
    with pytest.raises(DataError, match="got no batches"):
        wasserstein(Odd([]), y, **QUICK)
    with pytest.raises(DataError, match="x, batch 1: every value must be a finite number"):
        wasserstein(Odd([x, x * np.nan]), y, **QUICK)


class Odd:
    def __init__(self, items):
        self.items = items

    def __iter__(self):
        return iter(self.items)


class OneShot:
    """Iterable, yet every walk goes on where the last one stopped."""

    def __init__(self, rows):
        self.walk = iter(rows.split(10))

    def __iter__(self):
        return self.walk


def test_what_can_be_walked_once_loses_no_batch(pair):
    x, y = pair
    held = wasserstein(x, y, finite=True)
    once = wasserstein(OneShot(x), y, finite=True)
    assert once.rows == (90, 90) and once.lower.value == held.lower.value
    assert torch.equal(held.score(OneShot(x)), held.score(x))
