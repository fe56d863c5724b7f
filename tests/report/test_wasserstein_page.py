"""The page of a distance: its figures are those of the result, and it stands alone."""

import itertools
import re
from dataclasses import replace

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from support import seeded
from taut.bounds import Bound
from taut.data import Table
from taut.plotting import STYLE
from taut.report import (
    column_records,
    distance_guarantees,
    distance_headline,
    feature_table,
    format_bound,
)
from taut.report.figures import as_image
from taut.report.wasserstein_report import draw_interval, wasserstein_page
from taut.transport import WassersteinResult, compare_features, wasserstein
from taut.transport.input_data import open_pair

NAMES = ("old <a>.csv", "new & b.csv")


def table(shift: float, dim: int, seed: int, **kwargs) -> Table:
    values = np.random.default_rng(seed).uniform(size=(60, dim))
    values[:, 0] += shift
    columns = kwargs.pop("columns", tuple(f"feature <{j}>" for j in range(dim)))
    return Table(values, columns, kwargs.pop("image_shape", None), f"{seed}.csv")


def measure(x: Table, y: Table, **kwargs) -> WassersteinResult:
    return wasserstein(x, y, num_steps=3, **kwargs)


@pytest.fixture(scope="module")
def population() -> tuple[WassersteinResult, Table, Table]:
    x, y = table(3.0, 20, 1), table(0.0, 20, 2)
    result = measure(x, y, scaling="standard", critics=("cones",))
    return replace(result, upper_is_useful=True), x, y


@pytest.fixture(scope="module")
def finite() -> tuple[WassersteinResult, Table, Table]:
    x, y = (table(s, 12, i, columns=(), image_shape=(3, 2, 2)) for i, s in ((1, 0.5), (2, 0.0)))
    return measure(x, y, finite=True), x, y


@pytest.fixture(scope="module")
def population_html(population) -> str:
    return render(population, method="betting", metadata=[("Command", "taut wasserstein a b")])


@pytest.fixture(scope="module")
def finite_html(finite) -> str:
    return render(finite, seed=5)


def render(found: tuple[WassersteinResult, Table, Table], **kwargs) -> str:
    return wasserstein_page(*found, names=NAMES, **kwargs).render()


def test_the_page_has_the_figures(population, population_html):
    result, html = population[0], population_html
    for text in (
        format_bound(result.lower.value, "lower"),
        format_bound(result.upper.value, "upper"),
        f"{result.estimate.value:.4g}",
        f"{result.p_value:.3g}",
        format_bound(result.lipschitz.value, "upper", 7),
        "old &lt;a&gt;.csv and new &amp; b.csv are ",
        "Ville&#39;s inequality",
        "McDiarmid",
        "i.i.d. samples of one population",
        "neither population is wider than the data",
        "standard deviations",
        "taut wasserstein a b",
    ):
        assert text in html
    for title in ("Bounds on the distance", "Contributions of the columns", "Training"):
        assert f"<h2>{title}</h2>" in html
    assert html.count("<img ") == 4 + 12  # interval, scores, shares, training; columns
    assert "Rows of old &lt;a&gt;.csv least like new &amp; b.csv" in html


def test_the_page_fetches_nothing_and_escapes_names(population_html):
    bare = re.sub(r'src="data:[^"]*"', "", population_html)
    for word in ("http", "<script src", "fetch(", "<link", "url(", "@import", "feature <0>"):
        assert word not in bare


def test_the_feature_that_moved_is_named_first(population_html):
    alts = [alt for alt in re.findall(r'alt="([^"]*)"', population_html) if alt.startswith("Share")]
    assert len(alts) == 1
    assert alts[0].startswith("Share of each feature: feature &lt;0&gt; ")
    assert "5 others" in alts[0]
    shares = [float(number) for number in re.findall(r" (-?[\d.e-]+) %", alts[0])]
    assert len(shares) == 16
    assert sum(shares) == pytest.approx(100, abs=0.5)


def test_the_extremes_are_those_of_the_scores(population, population_html):
    result, x, y = population
    highest = int(result.score(x).argmax())
    lowest = int(result.score(y).argmin())
    firsts = re.findall(r'<tbody>\s*<tr>\s*<th scope="row" class=short>(\d+)</th>', population_html)
    assert firsts == [str(highest), str(lowest)]


@pytest.mark.slow
def test_images_are_shown_as_images(finite_html):
    html = finite_html
    assert "<h2>Contributions of the pixels</h2>" in html
    assert html.count("<h2>Images of ") == 2
    # Interval, scores; two means, difference, shares; two grids for each side.
    assert html.count("<img ") == 2 + 4 + 4
    assert "Anything about the populations" in html
    assert "p-value" not in html


def test_the_seed_decides_and_others_draws_are_left_alone(finite, finite_html):
    state = torch.random.get_rng_state()
    assert render(finite, seed=5) == finite_html
    assert torch.equal(torch.random.get_rng_state(), state)


def test_nothing_to_tell_apart():
    x = Table(np.ones((30, 2)), ("a", "b"), None, "x")
    html = wasserstein_page(measure(x, x), x, x).render()
    assert "do not show that they differ" in html
    assert "Contributions of the columns" not in html


def test_the_headline_rounds_outward(population):
    result, *_ = population
    lower = Bound(0.37499, side="lower", confidence=0.975)
    result = replace(result, lower=lower, upper=Bound(0.61101, confidence=0.975), p_value=0.001)
    text = distance_headline(result, ("A", "B"))
    apart = "A and B are between 0.374 and 0.612 apart, at 95 % confidence"
    assumed = "if neither population is wider than the data"
    assert text == f"{apart} {assumed} (permutation test: p = 0.001)"
    text = distance_headline(replace(result, upper_is_useful=False), ("A", "B"))
    assert text == (
        "A and B are at least 0.374 apart, at 97.5 % confidence (permutation test: p = 0.001); no "
        "useful upper bound in 20 dimensions"
    )


@pytest.mark.parametrize(
    ("p_value", "shown"),
    [
        (None, "the bounds do not show that they differ"),
        (0.31, "the bounds and a permutation test (p = 0.31) do not show that they differ"),
        (0.006, "a permutation test shows at the 5 % level that they differ (p = 0.006), although "
         "the lower bound on the distance is 0"),
    ],
)  # fmt: skip
def test_a_lower_bound_of_0_does_not_hide_what_the_test_shows(population, p_value, shown):
    nothing = Bound(0.0, side="lower", confidence=0.975)
    upper = Bound(0.61101, confidence=0.975)
    result = replace(population[0], lower=nothing, upper=upper, p_value=p_value)
    text = distance_headline(result, ("A", "B"))
    assumed = "if neither population is wider than the data"
    assert text == f"A and B are at most 0.612 apart, at 95 % confidence {assumed}; {shown}"


@pytest.mark.parametrize("value", [1e-300, 0.1, 1 / 3, 12345.678, 9.9996, 1e22])
def test_rounding_stays_on_its_side(value: float):
    low, high = float(format_bound(value, "lower")), float(format_bound(value, "upper"))
    assert low <= value <= high
    assert high - low <= 1.0001e-3 * value


def test_a_stated_diameter_is_no_assumption(population):
    result, *_ = population
    sure = replace(result, diameter=9.0)
    assert "Assumption of the upper bound" in distance_guarantees(result)
    assert "Assumption of the upper bound" not in distance_guarantees(sure)


@pytest.mark.parametrize(
    ("low", "middle", "high"), [(0, 0, 0), (0, -0.1, 1), (0.99, 0.995, 1), (1e-9, 5, 9)]
)
def test_every_interval_can_be_drawn(population, low: float, middle: float, high: float):
    result = population[0]
    made = replace(
        result,
        lower=Bound(low, side="lower"),
        upper=Bound(high),
        estimate=replace(result.estimate, value=middle),
    )
    assert draw_interval(made).source.startswith("data:image/svg+xml;base64,")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 3), (4, 3)),
        ((1, 4, 3), (4, 3)),
        ((4, 3, 1), (4, 3)),
        ((3, 5, 4), (5, 4, 3)),
        ((5, 4, 3), (5, 4, 3)),
        ((7, 5, 4), None),
        ((2, 2, 2, 2), None),
    ],
)
def test_shapes_of_images(shape: tuple[int, ...], expected: tuple[int, ...] | None):
    image = as_image(np.arange(np.prod(shape)), shape)
    assert (None if image is None else image.shape) == expected


def test_odd_shapes_are_told_as_features():
    g = seeded()
    x = Table(torch.rand(30, 8, generator=g).double().numpy(), (), (2, 2, 2), "x")
    y = Table(torch.rand(30, 8, generator=g).double().numpy() + 1, (), (2, 2, 2), "y")
    html = wasserstein_page(measure(x, y, finite=True), x, y).render()
    assert "Contributions of the columns" in html
    assert "column 0" in html


@pytest.mark.parametrize(("names", "shown"), [("SML", [0, 1, 2]), ("abcdefg", [0, 2, 4, 6])])
def test_ordered_categories_are_named_on_their_axis(monkeypatch, names, shown):
    pd = pytest.importorskip("pandas")
    drawn = []
    monkeypatch.setattr(feature_table, "draw", lambda paint, **_: drawn.append(paint))
    sizes = pd.Categorical(list(names) * 9, list(names), ordered=True)
    pair = open_pair(pd.DataFrame({"size": sizes}), pd.DataFrame({"size": sizes[::-1]}))
    tables = (pair.first, pair.second)
    feature_table.feature_sections(compare_features(*tables), None, tables, NAMES)
    axes = Figure().add_subplot()
    drawn[0](axes)
    assert axes.get_xticks().tolist() == shown
    ticks = axes.xaxis.get_major_formatter().format_ticks(shown)
    assert ticks == [names[place] for place in shown]


def test_columns_of_a_mixed_table_are_told_one_by_one():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)

    def frame(shift: float):
        rows = pd.DataFrame(
            {
                "age": rng.normal(40 + shift, 9, 80),
                "colour": rng.choice(["red", "blue", "tan"], 80),
                "size": pd.Categorical(rng.choice(["S", "M"], 80), ["S", "M"], ordered=True),
                "day": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 9, 80), "D"),
            }
        )
        rows.loc[:7, "age"] = np.nan
        return rows

    pair = open_pair(frame(30.0), frame(0.0))
    result = measure(pair.first, pair.second)
    html = wasserstein_page(result, pair.first, pair.second, names=NAMES).render()
    for text in (
        "Column by column",
        "Distributions",
        "Holm",
        "10\xa0/\xa010\xa0%",
        "2026-01-0",
        "tan",
    ):
        assert text in html
    records = column_records(result, pair.first, pair.second)
    assert [record["name"] for record in records] == ["age", "colour", "size", "day"]
    assert sum(record["share_of_distance"] for record in records) == pytest.approx(1, abs=1e-6)
    assert records[0]["share_of_distance"] > 0.6
    assert records[0]["corrected_p_value"] < 1e-6 < records[1]["corrected_p_value"]


@pytest.mark.parametrize("days", [1, 40, 300, 5000])
def test_dates_below_a_histogram_do_not_collide(days, monkeypatch):
    pd = pytest.importorskip("pandas")
    painted = {}
    monkeypatch.setattr(
        "taut.report.feature_table.draw",
        lambda paint, **options: painted.update(options, paint=paint),
    )
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"hired": np.datetime64("2021-01-01") + rng.integers(0, days, 99)})
        for _ in range(2)
    ]
    tables = open_pair(*frames)[:2]
    feature_table.feature_sections(compare_features(*tables), None, tables, NAMES)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=painted["size"], layout="constrained")
        axes = figure.add_subplot()
        painted["paint"](axes)
        figure.draw_without_rendering()
        labels = {label.get_text(): label.get_window_extent() for label in axes.get_xticklabels()}
    assert labels and all(re.fullmatch(r"20\d\d-\d\d-\d\d", text) for text in labels)
    boxes = sorted(labels.values(), key=lambda box: box.x0)
    assert all(a.x1 + 5 < b.x0 for a, b in itertools.pairwise(boxes))
