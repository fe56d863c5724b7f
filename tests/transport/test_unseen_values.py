"""An encoding fitted beforehand meets values it has not seen: lower bounds hold, no others are given."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import taut
from taut.data import Encoding, FrameSource, TableStream, fit_encoding, read_table
from taut.report import distance_guarantees, distance_headline, distance_rows
from taut.report.wasserstein_report import draw_interval
from taut.transport import WassersteinResult, load_critic

ROWS = 60


def fit(frame: pd.DataFrame) -> Encoding:
    return fit_encoding(FrameSource(frame, "reference"), category_distance=2.0)


def true_distance(x: pd.DataFrame, y: pd.DataFrame, centre: float) -> float:
    """W1 of two tables of v and c by the stated metric, whatever an encoding knows of them."""
    cost = np.zeros((len(x), len(y)))
    for i, (v, c) in enumerate(zip(x["v"], x["c"], strict=True)):
        for j, (w, d) in enumerate(zip(y["v"], y["c"], strict=True)):
            known = [centre if math.isnan(number) else number for number in (v, w)]
            square = (known[0] - known[1]) ** 2 + (math.isnan(v) != math.isnan(w))
            cost[i, j] = math.sqrt(square + 4.0 * (c != d))
    return cost[linear_sum_assignment(cost)].mean()


def check_told(result: WassersteinResult, *columns: str) -> None:
    """No upper bound anywhere, and the columns are named."""
    assert result.unseen == columns
    assert result.upper.value == math.inf and not result.upper_is_useful
    assert "may be too low" in result.estimate.method
    note = next(note for note in result.notes if note.startswith("no upper bound: "))
    told = [note, str(result), distance_headline(result, ("x", "y"))]
    assert all(repr(name) in text and "no upper bound" in text for name in columns for text in told)
    assert not any("upper bound assumes" in note for note in result.notes)
    assert str(result).startswith("lower estimate ") and "in [" not in str(result)
    assert distance_guarantees(result)["Upper bound"].startswith("None: ")
    assert "at most" not in [row[0] for row in distance_rows(result)]
    assert draw_interval(result).alt.startswith("At least ")


@pytest.mark.parametrize("known", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_only_lower_bounds_survive(known, seed):
    random = np.random.default_rng([known, seed])
    names = np.array(list("abcdefgh"))

    def draw(categories, gaps):
        v = np.where(random.random(24) < gaps, np.nan, random.normal(size=24))
        return pd.DataFrame({"v": v, "c": random.choice(names[:categories], 24)})

    reference = pd.DataFrame({"v": random.normal(size=30), "c": np.resize(names[:known], 30)})
    encoding = fit(reference)
    for categories, gaps in ((8, 0.0), (known, 0.4), (8, 0.4), (known, 0.0)):
        x, y = draw(categories, gaps), draw(categories, gaps)
        result = taut.wasserstein(x, y, finite=True, scaling="none", encoding=encoding)
        truth = true_distance(x, y, result.scaling.shift[0].item())
        assert result.lower.value <= truth * (1 + 1e-9)
        both = pd.concat([x, y])
        strange = {"v": both["v"].isna(), "c": ~both["c"].isin(names[:known])}
        if told := [name for name, cells in strange.items() if np.asarray(cells).any()]:
            check_told(result, *told)
        else:
            assert result.unseen == () and truth <= result.upper.value * (1 + 1e-9)


@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("kind", ["frames", "tables", "streams"])
@pytest.mark.parametrize("side", [0, 1])
def test_one_unseen_cell_is_enough(finite, kind, side, tmp_path):
    """Wherever the row is, in whichever table, and however the table is read."""
    random = np.random.default_rng(side)
    reference = pd.DataFrame(
        {"v": random.normal(size=150), "c": np.resize(["a", "b", "c"], 150), "w": 1.0}
    )
    encoding = fit(reference)
    tables = [reference.copy(), reference.copy()]
    tables[side].loc[149, "c"] = "new"
    data: list = tables
    if kind != "frames":
        for name, table in zip("xy", tables, strict=True):
            table.to_csv(tmp_path / f"{name}.csv", index=False)
        paths = [tmp_path / "x.csv", tmp_path / "y.csv"]
        data = [TableStream(path) for path in paths]
        if kind == "tables":
            data = [read_table(path, encoding=encoding) for path in paths]
    given = {} if kind == "tables" else {"encoding": encoding}
    check_told(taut.wasserstein(*data, finite=finite, num_steps=20, **given), "c")
    if kind == "frames":
        found = taut.wasserstein(*data, finite=finite, num_steps=20)
        assert found.unseen == () and found.upper.value < math.inf


@pytest.mark.parametrize("rows", [40, 200])
@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("scaling", ["none", "standard", "robust"])
def test_gaps_in_a_single_column(rows, finite, scaling):
    random = np.random.default_rng(rows)
    encoding = fit(pd.DataFrame({"v": random.normal(size=50)}))
    x, y = (pd.DataFrame({"v": random.normal(shift, 1, rows)}) for shift in (0.0, 3.0))
    y.loc[::2, "v"] = np.nan
    result = taut.wasserstein(x, y, encoding=encoding, finite=finite, scaling=scaling)
    check_told(result, "v")
    shift, scale = result.scaling.shift.item(), result.scaling.scale.item()
    cost = np.subtract.outer(x["v"].to_numpy(), y["v"].fillna(shift).to_numpy()) / scale
    cost = np.hypot(cost, y["v"].isna().to_numpy()[None])
    truth = cost[linear_sum_assignment(cost)].mean()
    assert result.lower.value <= truth * (1 + 1e-9)
    assert not finite or result.lower.value > 0


def test_saved_critics_say_that_bounds_may_be_too_small(tmp_path):
    random = np.random.default_rng(0)
    x, y = (
        pd.DataFrame({"v": random.normal(shift, 1, ROWS), "c": np.resize(["a", "b", "c"], ROWS)})
        for shift in (0, 9)
    )
    taut.wasserstein(x, y, num_steps=20).save(tmp_path / "critic.safetensors")
    critic = load_critic(tmp_path / "critic.safetensors")
    assert all(not bound.hypotheses.statements for bound in critic.lower_bounds(x))
    for strange, name in ((x.assign(c="new"), "'c'"), (x.assign(v=np.nan), "'v'")):
        for bound in critic.lower_bounds(strange):
            (told,) = bound.hypotheses.statements
            assert name in told and "too small" in told


def coupled_rows(monkeypatch, x, y, **options) -> tuple[WassersteinResult, list[torch.Tensor]]:
    """The result, and the rows behind its upper bound, as `bound_population_upper` gets them."""
    import taut.transport.population_comparison as module

    found: list[torch.Tensor] = []
    real = module.bound_population_upper

    def spy(a, b, *args, **kwargs):
        found.extend((a, b))
        return real(a, b, *args, **kwargs)

    monkeypatch.setattr(module, "bound_population_upper", spy)
    return taut.wasserstein(x, y, num_steps=20, **options), found


def without(all_values: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The values that are not among some, which went through a shift and back."""
    nearest = np.abs(np.subtract.outer(all_values, some)).min(axis=1)
    return all_values[nearest > 1e-9]


def test_missing_numbers_do_not_stand_where_coupled_rows_put_them(monkeypatch):
    """With gaps even the shift changes distances, so the rows that fix it are not coupled."""
    random = np.random.default_rng(0)
    x, y = (pd.DataFrame({"v": random.normal(size=200), "w": 0.0}) for _ in "xy")
    x.loc[:20, "v"] = np.nan
    result, coupled = coupled_rows(monkeypatch, x, y, scaling="none")
    assert len(coupled[0]) < 200 and len(coupled[1]) < 200
    shift = result.scaling.shift[0].item()
    used = torch.cat(coupled).numpy()
    gaps = used[:, 1] + result.scaling.shift[1].item() > 0.5
    raw = used[~gaps, 0] + shift
    rest = without(np.concatenate([x["v"].dropna(), y["v"]]), raw)
    assert rest.mean() == pytest.approx(shift, rel=1e-9)
    _, coupled = coupled_rows(monkeypatch, x.fillna(0), y, scaling="none")
    assert len(coupled[0]) == len(coupled[1]) == 200


@pytest.mark.parametrize("rows", [60, 200])
def test_a_stated_diameter_on_a_line_is_in_a_unit_that_other_rows_fixed(rows, monkeypatch):
    random = np.random.default_rng(rows)
    x, y = random.random(rows), random.random(rows)
    result, coupled = coupled_rows(monkeypatch, x, y, scaling="standard", diameter=20.0)
    rest = without(np.concatenate([x, y]), torch.cat(coupled).flatten().numpy())
    assert 0 < len(rest) < 2 * rows
    assert rest.std(ddof=1) == pytest.approx(result.scaling.scale.item(), rel=1e-9)
    for options in ({"diameter": 20.0}, {"scaling": "standard"}):
        _, coupled = coupled_rows(monkeypatch, x, y, **options)
        assert len(coupled[0]) == len(coupled[1]) == rows
