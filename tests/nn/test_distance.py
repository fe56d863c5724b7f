"""Distance units: 1-Lipschitz in L-inf at any weight, and bounds that nothing crosses."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import taut
from taut.errors import ArgumentError, NonFiniteError
from taut.nn import Centering, LinfDistance, SortDistance

UNITS = [
    lambda n, m: LinfDistance(n, m),
    lambda n, m: SortDistance(n, m, q=0.2),
    lambda n, m: SortDistance(n, m, q=0.7),
    lambda n, m: SortDistance(n, m, q=1.0),
]
units = pytest.mark.parametrize("make", UNITS, ids=["max", "q=.2", "q=.7", "q=1"])


def draw(*sizes: int, seed: int = 0) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(make, n: int, m: int, scale: float = 1.0) -> LinfDistance | SortDistance:
    torch.manual_seed(0)
    layer = make(n, m).double().eval()
    layer.weight.data.mul_(scale)
    return layer


def by_numpy(layer: LinfDistance | SortDistance, x: Tensor) -> np.ndarray:
    """Sorted distances times the coefficients of the definition, in float64."""
    u = -np.sort(-np.abs(x.numpy()[:, None] - layer.weight.detach().numpy()), -1)[..., :10]
    if isinstance(layer, LinfDistance):
        return u[..., 0]
    c = layer.q * (1 - layer.q) ** np.arange(u.shape[-1])
    return u @ (c / c.sum())


@units
@pytest.mark.parametrize("size", [1, 4, 10, 37])
def test_values_are_those_of_the_definition(make, size):
    layer, x = built(make, size, 5), draw(9, size)
    np.testing.assert_allclose(layer(x).detach().numpy(), by_numpy(layer, x), rtol=1e-13)
    many = x.reshape(3, 3, size)
    torch.testing.assert_close(layer(many), layer(x).reshape(3, 3, 5))


@pytest.mark.parametrize("q", [1e-300, 1e-9, 0.1, 1 / 3, 0.7, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("size", [1, 2, 10, 20])
def test_coefficients_never_add_up_to_more_than_one(q, size):
    total = sum(map(Fraction, SortDistance(size, 1, q=q).coefficients))
    assert 1 - 2.0**-50 <= total <= 1


@units
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_no_two_points_are_pushed_apart(make, scale):
    """Also along signed corners, where the slope is attained."""
    layer, x = built(make, 12, 7, scale), scale * draw(200, 12)
    assert taut.bound_lipschitz(layer, "linf", (12,)).value == 1.0
    for step in (scale * draw(200, 12, seed=1).sign() * 0.1, scale * draw(200, 12, seed=2)):
        moved = (layer(x + step) - layer(x)).abs().amax(1)
        assert bool((moved <= step.abs().amax(1) * (1 + 1e-12)).all())
    up = (x - layer.weight[0]).sign() * scale
    moved = layer(x + up)[:, 0] - layer(x)[:, 0]
    torch.testing.assert_close(moved, torch.full_like(moved, scale), rtol=1e-6, atol=0)


@units
@pytest.mark.parametrize("shape", [(6,), (3, 6)])
@pytest.mark.parametrize(
    "norms", [(a, b) for a in ("l1", "l2", "linf") for b in ("l1", "l2", "linf")]
)
def test_constants_between_all_norms_are_above_sampled_slopes(make, shape, norms):
    layer, order = built(make, 6, 4), {"l1": 1, "l2": 2, "linf": math.inf}
    bound = taut.bound_lipschitz(layer, norms[0], shape, norms[1]).value
    x = draw(300, *shape)
    step = (x - layer.weight[0].detach()).sign() * draw(*x.shape, seed=1).abs()
    step[::3] = step[::3].sign()
    before = torch.linalg.vector_norm(step.flatten(1), order[norms[0]], dim=1)
    moved = (layer(x + 1e-3 * step) - layer(x)).detach() * 1e3
    after = torch.linalg.vector_norm(moved.flatten(1), order[norms[1]], dim=1)
    assert float((after / before).max()) <= bound * (1 + 1e-9)


@units
@pytest.mark.parametrize("arithmetic", ["real", "float32"])
def test_boxes_hold_outputs_at_corners_and_are_attained(make, arithmetic):
    layer = built(make, 6, 5).float()
    low = draw(4, 6).float()
    high = low + draw(4, 6, seed=1).abs().float() * torch.tensor([0.0, 1e-6, 0.5, 3.0])[:, None]
    lower, upper = taut.bound_outputs(layer, low, high, arithmetic)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6)
    x = torch.where(corners[:, None] > 0, high, low)
    nearest = torch.minimum(torch.maximum(layer.weight.detach()[:, None], low), high)
    for points in (*x, *nearest):
        exact = layer.double()(points.double()).detach()
        assert bool(((lower <= exact) & (exact <= upper)).all())
        ran = layer.float()(points).detach().double()
        if arithmetic == "float32":
            assert bool(((lower <= ran) & (ran <= upper)).all())
    # The best box, entry by entry: nearest and farthest points of the box.
    outputs = torch.stack([layer.double()(p.double()) for p in (*x, *nearest)])
    layer.float()
    slack = 1e-5 if arithmetic == "float32" else 1e-12
    torch.testing.assert_close(outputs.amax(0), upper, rtol=0, atol=slack)
    torch.testing.assert_close(outputs.amin(0), lower, rtol=0, atol=slack)


@units
def test_an_unknown_box_stays_unknown(make):
    """Behind an overflow the ends are no numbers, which a maximum must not hide."""
    torch.manual_seed(0)
    steep = nn.Linear(3, 6, bias=False)
    steep.weight.data.fill_(3e38)
    net = nn.Sequential(steep, nn.Linear(6, 6), make(6, 2)).eval()
    low, high = taut.bound_outputs(net, -torch.ones(1, 3), torch.ones(1, 3), "float32")
    assert bool((low <= 0).all()) and bool(high.isinf().all())


@units
def test_float32_certificates_cost_next_to_nothing(make):
    torch.manual_seed(0)
    net = nn.Sequential(
        make(20, 30), Centering(30), make(30, 30), Centering(30), make(30, 4)
    ).eval()
    x = draw(50, 20).float()
    real, single = (taut.certify(net, x, "linf", arithmetic=a) for a in ("real", "float32"))
    lost = real.radius - single.radius
    assert bool((lost >= 0).all()) and float(lost.max()) < 5e-5
    assert float(real.radius.median()) > 1e-3


@pytest.mark.parametrize("q", [0.3, 0.7])
def test_the_mean_over_dropped_coordinates_is_the_sum_of_order_statistics(q):
    """Exactly, over all 2^8 sets; with 8 coordinates the truncated tail is (1-q)^8 of the total."""
    u = draw(8).abs()
    layer = SortDistance(8, 1, q=q).double().eval()
    nn.init.zeros_(layer.weight)
    mean = 0.0
    for bits in range(2**8):
        kept = torch.tensor([bits >> k & 1 for k in range(8)], dtype=torch.float64)
        chance = q ** float(kept.sum()) * (1 - q) ** float(8 - kept.sum())
        mean += chance * float((u * kept).max())
    assert math.isclose(mean, layer(u[None]).item() * (1 - (1 - q) ** 8), rel_tol=1e-12)


def test_training_uses_the_exponent_and_evaluation_the_maximum():
    layer, x = LinfDistance(5, 3), draw(4, 5).float()
    layer.exponent = 8
    difference = (x[:, None] - layer.weight).abs()
    torch.testing.assert_close(layer(x), difference.pow(8).sum(-1).pow(1 / 8))
    torch.testing.assert_close(layer.eval()(x), difference.amax(-1))
    assert taut.bound_lipschitz(layer.train(), "linf", (5,)).value == 1.0


def test_training_learns_a_function_that_rows_in_the_l1_ball_cannot():
    """max(|x|, |y|) has slope 1 in every direction of two coordinates at once."""
    torch.manual_seed(0)
    x = 4 * torch.rand(512, 2) - 2
    net = LinfDistance(2, 1)
    adam = torch.optim.Adam(net.parameters(), 0.05)
    for step in range(150):
        net.exponent = 8 if step < 100 else math.inf
        adam.zero_grad()
        nn.functional.mse_loss(net(x)[:, 0], x.abs().amax(1)).backward()
        adam.step()
    assert (net.eval()(x)[:, 0] - x.abs().amax(1)).abs().max().item() < 0.1


def test_a_broken_weight_and_wrong_shapes_are_refused():
    for layer in (LinfDistance(3, 2), SortDistance(3, 2)):
        with pytest.raises(ArgumentError, match="last dimension 3"):
            layer(torch.zeros(1, 4))
        layer.weight.data[0, 0] = math.nan
        with pytest.raises(NonFiniteError):
            taut.bound_lipschitz(layer, "linf")
    for q in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ArgumentError, match="q"):
            SortDistance(3, 2, q=q)
