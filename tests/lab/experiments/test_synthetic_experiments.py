"""The experiments on approximation: the paper's claims, against independent computations."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from taut.audit import bound_lipschitz
from taut_lab.experiments import bjorck_convergence, network_views, plane_folding
from taut_lab.experiments.registry import find_experiment
from taut_lab.framework.result_selection import select

NAMES = (
    "absolute-value",
    "three-cones",
    "prob-dim",
    "bjorck-runtime",
    "bjorck-convergence",
    "bjorck-against-spectral",
    "network-views",
    "dynamical-isometry",
)


@pytest.fixture(scope="module")
def results(smoke_results):
    return {name: smoke_results(name) for name in NAMES}


def paper_row(name, table, row):
    return [entry.paper for entry in find_experiment(name).show([]).tables[table].rows[row]]


def test_the_numbers_of_the_paper_are_those_of_its_tables():
    assert paper_row("prob-dim", 0, "MaxMin") == [0.87, 0.95, 0.83, 0.93, 0.72, 0.88]
    assert paper_row("prob-dim", 0, "ReLU") == [0.51, 0.60, 0.50, 0.53, 0.46, 0.49]
    assert paper_row("prob-dim", 0, "FullSort") == [1.0] * 6
    assert paper_row("bjorck-runtime", 0, "full") == [0.020, 0.039, 0.059, 0.095, 0.21]
    assert paper_row("bjorck-runtime", 0, "products") == [0.0002, 0.0005, 0.0011, 0.012, 2.88]
    assert paper_row("bjorck-runtime", 1, "speed-up") == [99.98, 78.59, 53.56, 7.77, 0.07]


@pytest.mark.slow
def test_times_of_other_sizes_are_not_compared_with_the_paper(results):
    tables = find_experiment("bjorck-runtime").show(results["bjorck-runtime"]).tables
    assert all(e.paper is None for table in tables for row in table.rows.values() for e in row)


def objective(results, name, **where):
    (result,) = select(results[name], **where)
    return result.outcome.numbers["objective"]


@pytest.mark.slow
def test_sorting_activations_find_more_than_relu(results):
    absolute = {a: objective(results, "absolute-value", activation=a) for a in ("relu", "maxmin")}
    assert absolute["maxmin"] > 0.95 > 0.7 > absolute["relu"]
    for name in ("three-cones", "prob-dim"):
        assert objective(results, name, activation="maxmin") > objective(
            results, name, activation="relu"
        )
    for dim in (4, 16):
        found = {
            c: objective(results, "bjorck-against-spectral", dim=dim, constraint=c)
            for c in ("bjorck", "spectral")
        }
        assert found["bjorck"] > found["spectral"]


@pytest.mark.slow
def test_no_critic_exceeds_the_distance(results):
    for name in ("absolute-value", "three-cones", "prob-dim", "bjorck-against-spectral"):
        for result in results[name]:
            numbers = result.outcome.numbers
            # A sample mean may exceed the distance a little by chance.
            assert numbers["objective"] <= 1.02
            assert numbers.get("lower", 0.0) <= 1
            assert numbers.get("slope", 0.0) <= 1 + 1e-6


@pytest.mark.slow
def test_both_implementations_of_bjorck_agree(results):
    for result in results["bjorck-runtime"]:
        assert result.outcome.numbers["largest_gap"] < 1e-5


@pytest.mark.slow
def test_singular_values_follow_the_scalar_recursion(results):
    for result in results["bjorck-convergence"]:
        size, beta, seed = (result.config[key] for key in ("size", "beta", "seed"))
        values = np.linalg.svd(bjorck_convergence._start(size, seed).numpy(), compute_uv=False)
        done = 0
        for step, largest, smallest in zip(*result.outcome.series.values(), strict=True):
            for _ in range(step - done):
                values = values * (1 + beta * (1 - values**2))
            done = step
            assert largest == pytest.approx(values.max(), abs=1e-6)
            assert smallest == pytest.approx(values.min(), abs=1e-6)


@pytest.mark.slow
def test_bjorck_converges_where_parseval_does_not(results):
    ends = {r.config["beta"]: r.outcome.numbers for r in results["bjorck-convergence"]}
    assert ends[0.5]["smallest_after_50"] == pytest.approx(1, abs=1e-7)
    assert ends[0.0003]["smallest_after_50"] < 0.1


def test_three_folds_map_the_plane_to_a_quadrant_exactly():
    # Multiples of 1/8 are exact in floating point, so nothing may differ at all.
    line = torch.arange(-24, 25, dtype=torch.float64) / 8
    plane = torch.cartesian_prod(line, line)
    folded = plane_folding.folding_network()[:6](plane)
    for (x, y), (a, b) in zip(plane.tolist(), folded.tolist(), strict=True):
        u, v = Fraction(x), Fraction(y)
        assert (Fraction(a), Fraction(b)) == (abs(abs(u) - 1), abs(v))


@pytest.mark.parametrize("angle", [0.0, 30.0, 77.0])
def test_folds_and_a_linear_function_are_two_pyramids(angle):
    net = plane_folding.folding_network(angle)
    points = 4 * torch.rand(500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = points - 2
    turn = math.radians(angle)
    x, y = points.numpy().T
    u, v = math.cos(turn) * x + math.sin(turn) * y, -math.sin(turn) * x + math.cos(turn) * y
    # The distance to the nearer tip in the norm whose unit ball is the pyramids' base.
    nearer = np.minimum(abs(u - 1), abs(u + 1)) + abs(v)
    np.testing.assert_allclose(net(points).flatten().numpy(), 1 - nearer / 2**0.5, atol=4e-15)
    for place in (0, 2, 4):
        weight = net.state_dict()[f"{place}.weight"].numpy()
        np.testing.assert_allclose(weight @ weight.T, np.eye(2), atol=1e-15)
    assert 1 <= bound_lipschitz(net, "l2").value < 1 + 1e-14


@pytest.mark.slow
def test_layer_views_sort_and_the_output_approximates_the_target(results):
    for result in results["network-views"]:
        series = result.outcome.series
        for layer in series["layers"]:
            before, after = np.array(layer["before"]), np.array(layer["after"])
            np.testing.assert_array_equal(np.sort(before, 0), np.sort(after, 0))
        assert result.outcome.numbers["bound"] <= 1
        target = network_views.target_values(result.config["view"], torch.tensor(series["x"]))
        gap = np.abs(np.array(series["output"]) - target.numpy()).max()
        assert gap <= result.outcome.numbers["largest_error"] + 0.05
    (absolute,) = select(results["network-views"], view="abs")
    assert absolute.outcome.numbers["largest_error"] < 0.05


@pytest.mark.slow
def test_sorting_networks_without_widening_layers_have_equal_singular_values(results):
    for result in results["dynamical-isometry"]:
        numbers = result.outcome.numbers
        if result.config["activation"] == "maxmin":
            assert 10 * 0.999**3 <= numbers["low"] <= numbers["high"] <= 10 * (1 + 1e-5)
        else:
            assert numbers["low"] < 9
