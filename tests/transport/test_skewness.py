"""Directions in which one sample is skewed and the other is not, and cones along them."""

import numpy as np
import pytest
import torch

from taut.transport import dual_value, fit_cones, funnels, pursue_centres, skewed_directions
from taut.transport.skewness import _third_moment, _whitening

pytestmark = pytest.mark.slow


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def with_tails(axes, n, generator, share=0.05, length=4.0):
    """Normal points, of which a share for each axis was moved along it."""
    points = torch.randn(n, axes.shape[1], generator=generator)
    each = int(share * n)
    for i, axis in enumerate(axes):
        points[i * each : (i + 1) * each] += length * axis
    return points


def test_the_third_moment_is_that_of_numpy():
    z = torch.randn(500, 4, generator=seeded(0), dtype=torch.float64).exp()
    u = torch.randn(3, 4, generator=seeded(1), dtype=torch.float64)
    mean, root = _whitening(z)
    white = (z.numpy() - z.numpy().mean(0)) @ root.numpy()
    assert np.allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-9)
    oracle = np.einsum("ni,nj,nk,mi,mj->mk", white, white, white, u.numpy(), u.numpy()) / 500
    assert np.allclose(_third_moment(z, mean, root, u).numpy(), oracle, atol=1e-9)


def test_every_skewed_direction_is_found_once_and_first():
    axes = torch.nn.functional.normalize(torch.randn(6, 20, generator=seeded(0)), dim=-1)
    x = with_tails(axes, 40_000, seeded(1))
    y = torch.randn(40_000, 20, generator=seeded(2))
    found = skewed_directions(x, y, num_starts=32, generator=seeded(3))
    cosines = found[:6] @ axes.T
    assert sorted(cosines.argmax(1).tolist()) == list(range(6))
    assert cosines.amax(1).min() > 0.85
    assert torch.allclose(found.norm(dim=1), torch.ones(len(found)), atol=1e-5)
    near = found @ found.T - 2 * torch.eye(len(found))
    assert near.max() < 0.95


def test_skewness_of_both_samples_cancels():
    axes = torch.eye(10)[:2]
    x = with_tails(axes, 40_000, seeded(1))
    y = with_tails(axes[:1], 40_000, seeded(2))
    strongest = skewed_directions(x, y, num_starts=16, generator=seeded(3))[0]
    assert strongest[1] > 0.9 and abs(strongest[0]) < 0.3


def test_a_constant_column_gives_no_direction():
    x = with_tails(torch.eye(4)[:1], 5000, seeded(0))
    y = torch.randn(5000, 4, generator=seeded(1))
    x[:, 3] = y[:, 3] = 7.0
    found = skewed_directions(x, y, num_starts=8, generator=seeded(2))
    assert found.isfinite().all()
    assert found[0, 0] > 0.9


def test_cones_from_pursued_centres_find_funnels_and_stay_below_the_distance():
    problem = funnels(24, 8, 0, num_pairs=2**13)
    centres = pursue_centres(*problem.sample(2**14, seeded(0)), generator=seeded(0))
    fit = fit_cones(
        problem, generator=seeded(0), centres=centres, tips="p", num_steps=60, batch_size=256
    )
    assert not fit.critic.training and fit.critic.centres.shape == centres.shape
    assert problem.draw_paired is not None
    x, y = problem.draw_paired(4000, seeded(1))
    # On optimal pairs every 1-Lipschitz function falls by at most the length of the pair.
    fall = (fit.critic(x) - fit.critic(y)).flatten()
    assert (fall <= (x - y).norm(dim=-1) + 1e-4).all()
    assert dual_value(fit.critic, x, y).item() > 0.6 * (x - y).norm(dim=-1).mean().item()


def test_without_skewness_a_centre_is_a_point_of_the_sample():
    x = torch.zeros(50, 3)
    assert torch.equal(pursue_centres(x, x, generator=seeded(0)), x[:1])
