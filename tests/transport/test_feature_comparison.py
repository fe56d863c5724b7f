"""Columns one by one, against scipy; and rows that are no independent draws."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

import taut
from taut.data import Table
from taut.transport import compare_features
from taut.transport.feature_comparison import chi_square_test, correct_p_values, ks_test
from taut.transport.independence_checks import note_copies, note_order
from taut.transport.input_data import open_pair

pd = pytest.importorskip("pandas")


@pytest.mark.parametrize("shift", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("rows", [(30, 50), (400, 900)])
def test_kolmogorov_smirnov_is_scipys(rows, shift):
    rng = np.random.default_rng(rows[0])
    for _ in range(5):
        x, y = rng.normal(size=rows[0]), rng.normal(size=rows[1]) + shift
        oracle: Any = scipy.stats.ks_2samp(x, y, method="exact")
        statistic, p_value = ks_test(x, y)
        assert statistic == pytest.approx(oracle.statistic, rel=1e-12)
        assert p_value == pytest.approx(oracle.pvalue, abs=0.03)


def test_p_values_are_rarely_small_without_a_difference():
    rng = np.random.default_rng(0)
    numbers = [ks_test(rng.normal(size=40), rng.normal(size=60))[1] for _ in range(600)]
    shares = [0.45, 0.3, 0.2, 0.04, 0.01]
    counts = [np.stack([rng.multinomial(n, shares) for n in (40, 60)]) for _ in range(600)]
    categories = [chi_square_test(table.astype(float))[1] for table in counts]
    for p_values in (numbers, categories):
        assert np.mean(np.array(p_values) <= 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
        assert np.mean(np.array(p_values) <= 0.5) >= 0.3


def test_chi_square_is_scipys_where_no_category_is_rare():
    counts = np.array([[30.0, 40.0, 55.0], [60.0, 20.0, 70.0]])
    oracle: Any = scipy.stats.chi2_contingency(counts, correction=False)
    assert chi_square_test(counts) == pytest.approx((oracle.statistic, oracle.pvalue), rel=1e-9)
    assert chi_square_test(np.array([[3.0, 0.0], [4.0, 0.0]])) == (0.0, 1.0)


def test_correction_is_holms():
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert correct_p_values(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_p_values([]) == []


def test_columns_of_mixed_tables():
    rng = np.random.default_rng(1)

    def frame(n, shift, share):
        rows = pd.DataFrame(
            {
                "age": rng.normal(40 + shift, 9, n),
                "colour": rng.choice(["red", "blue"], n, p=[share, 1 - share]),
            }
        )
        rows.loc[: n // 10, "age"] = np.nan
        rows.loc[: n // 5, "colour"] = None
        return rows

    x, y = frame(2000, 0, 0.5), frame(1000, 5, 0.8)
    pair = open_pair(x, y)
    age, colour = compare_features(pair.first, pair.second)
    oracle = scipy.stats.wasserstein_distance(x.age.dropna(), y.age.dropna())
    assert age.distance == pytest.approx(oracle, rel=1e-6)
    assert age.missing == pytest.approx((0.1, 0.1), abs=0.01)
    assert age.means == pytest.approx((x.age.mean(), y.age.mean()))
    assert age.spreads == pytest.approx((x.age.std(ddof=0), y.age.std(ddof=0)))
    shares = [side.colour.value_counts(normalize=True)["red"] for side in (x, y)]
    assert colour.distance == pytest.approx(abs(shares[0] - shares[1]))
    assert dict((name, (a, b)) for name, a, b in colour.categories)["red"] == pytest.approx(shares)
    assert colour.missing == pytest.approx((0.2, 0.2), abs=0.01)
    assert max(age.corrected_p_value, colour.corrected_p_value) < 1e-6


def as_rows(values):
    return Table(np.asarray(values, float), (), None, "t")


def test_copies_are_noticed_unless_they_are_natural():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(300, 3))
    assert note_copies(as_rows(values)) == []
    assert "30 of 330 rows" in note_copies(as_rows(np.concatenate([values, values[:30]])))[0]
    assert note_copies(as_rows(rng.integers(0, 3, (300, 3)))) == []


def test_rounded_numbers_of_one_column_are_no_copies():
    rng = np.random.default_rng(2)
    ages, prices = rng.integers(18, 90, (3000, 1)), rng.normal(size=(3000, 1)).round(2)
    for values in (ages, prices, rng.standard_cauchy((3000, 1)).round(1), np.full((300, 1), 0.1)):
        assert note_copies(as_rows(values)) == []
    values = rng.normal(size=(300, 1)).round(9)
    assert "30 of 330 rows" in note_copies(as_rows(np.concatenate([values, values[:30]])))[0]


def test_order_is_noticed_and_chance_is_not():
    rng = np.random.default_rng(3)
    for law in (rng.normal, rng.standard_cauchy, lambda size: rng.integers(0, 2, size)):
        for rows in (25, 200, 3000):
            assert note_order(as_rows(law(size=(rows, 20))), ()) == []
    walk = rng.normal(size=(500, 4))
    walk[:, 2] = walk[:, 2].cumsum()
    walk[::7, 2] = np.nan
    assert "column 2 (counted from 0), correlation 0." in note_order(as_rows(walk), ())[0]
    turns = np.where(np.arange(100) % 2, 1.0, -1.0)[:, None]
    assert "opposite" in note_order(as_rows(turns), ())[0]


def test_a_column_that_numbers_the_rows_does_not_hide_a_time_series():
    walk = np.random.default_rng(3).normal(size=(500, 3))
    walk[:, 0] = np.arange(500) + 7
    (note,) = note_order(as_rows(walk), ("id", "a", "b"))
    assert "numbered or sorted by column 'id': leave out" in note
    walk[:, 2] = walk[:, 2].cumsum()
    assert "column 'b', correlation" in note_order(as_rows(walk), ("id", "a", "b"))[1]


def test_the_result_notes_them():
    rng = np.random.default_rng(4)
    walk = rng.normal(size=(200, 1)).cumsum(0)
    notes = taut.wasserstein(walk, np.concatenate([rng.normal(size=(100, 1))] * 2)).notes
    assert any("neighbouring rows of x are alike" in note for note in notes)
    assert any("100 of 200 rows of y are copies" in note for note in notes)
