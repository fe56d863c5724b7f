from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import taut.nn
from cases import operator_norm
from taut.errors import ArgumentError
from taut.norms import L1, L2, LINF

NORMS = {
    "orthonormal": L2,
    "bjorck": L2,
    "spectral": L2,
    "parseval": L2,
    "linf": LINF,
    "l1": L1,
}
ACTIVATIONS = [
    "maxmin",
    "groupsort2",
    "groupsort4",
    "fullsort",
    "maxout",
    "abs",
    "relu",
    "householder",
    "identity",
]


@pytest.mark.parametrize("constraint", NORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("lipschitz", [1.0, 0.1, 7.0])
def test_the_jacobian_never_passes_the_constant(constraint, activation, lipschitz):
    net = taut.nn.mlp([5, 8, 12, 3], activation, constraint, lipschitz).eval()
    norm = NORMS[constraint]
    if activation == "householder" and norm != L2:
        pytest.skip("keeps lengths in L2 alone")
    for _ in range(3):
        jacobian = torch.autograd.functional.jacobian(net, 3 * torch.randn(5))
        size = operator_norm(jacobian.double().numpy(), norm, norm)  # type: ignore[union-attr]
        assert size <= lipschitz * (1 + 1e-5)


def test_a_network_that_never_narrows_uses_all_of_its_slope():
    net = taut.nn.mlp([4, 8, 8], lipschitz=3.0).eval()
    jacobian = torch.autograd.functional.jacobian(net, torch.randn(4))
    values = np.linalg.svd(jacobian.double().numpy(), compute_uv=False)  # type: ignore
    np.testing.assert_allclose(values, 3, rtol=3e-3)


@pytest.mark.parametrize(("layer", "order"), [("LinfLinear", np.inf), ("L1Linear", 1)])
@pytest.mark.parametrize("sizes", [(6, 6), (6, 15), (15, 6), (1, 4), (4, 1)])
def test_corners_of_the_ball_use_all_of_the_slope_from_the_start(layer, order, sizes):
    weight = getattr(taut.nn, layer)(*sizes).weight.detach().double().numpy()
    vectors = weight if order == np.inf else weight.T
    np.testing.assert_allclose(np.abs(vectors).sum(1), 1, rtol=1e-6)
    # No input is read much more than another, and a square weight loses none of them.
    read = (vectors != 0).sum(0)
    assert read.max() - read.min() <= 1
    if sizes[0] == sizes[1]:
        np.testing.assert_array_equal(vectors @ vectors.T, np.eye(sizes[0]))


def test_the_constant_is_spread_evenly():
    net = taut.nn.mlp([3, 4, 4, 2], lipschitz=8.0)
    factors = [module.factor for module in net if isinstance(module, taut.nn.Scale)]
    assert factors == pytest.approx([2.0, 2.0, 2.0])
    assert not any(isinstance(module, taut.nn.Scale) for module in taut.nn.mlp([3, 4, 2]))


def test_two_sizes_make_one_layer():
    net = taut.nn.mlp([3, 2])
    assert [type(module) for module in net] == [taut.nn.OrthonormalLinear]


def test_maxout_narrows_the_next_layer():
    net = taut.nn.mlp([3, 8, 6, 2], "maxout")
    assert [m.in_features for m in net if hasattr(m, "in_features")] == [3, 4, 3]
    assert net(torch.randn(5, 3)).shape == (5, 2)


def test_no_constraint_is_plain_torch():
    net = taut.nn.mlp([3, 8, 2], "relu", "none")
    assert [type(module) for module in net] == [nn.Linear, nn.ReLU, nn.Linear]


def test_factories_are_taken():
    net = taut.nn.mlp(
        [3, 8, 2], lambda width: nn.Hardtanh(), partial(taut.nn.MixedLinear, p="l2", bias=False)
    )
    assert [type(module) for module in net] == [
        taut.nn.MixedLinear,
        nn.Hardtanh,
        taut.nn.MixedLinear,
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"sizes": [3]},
            r"mlp: `sizes` must name the input and the output at least; got sizes=\[3\]",
        ),
        ({"sizes": [3, 2], "lipschitz": 0.0}, "mlp: `lipschitz` must be finite and positive; got"),
        ({"sizes": [3, 2], "lipschitz": float("nan")}, "`lipschitz` must be finite and positive"),
        ({"sizes": [3, 2], "constraint": "l2"}, "`constraint` must be one of 'orthonormal', "),
        ({"sizes": [3, 2], "activation": "gelu"}, "`activation` must be one of 'maxmin', "),
        ({"sizes": [3, 0]}, "`out_features` must be a whole number >= 1; got out_features=0"),
        ({"sizes": [3, 4, 2], "activation": "groupsort0"}, "`group_size` must be a whole number"),
        ({"sizes": [3, 5, 2], "activation": "householder"}, "`num_channels` must be even"),
    ],
)
def test_errors_teach(arguments, text):
    with pytest.raises(ArgumentError, match=text):
        taut.nn.mlp(**arguments)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (
            lambda: taut.nn.OrthonormalLinear(0, 2),
            "OrthonormalLinear: `in_features` must be a whole",
        ),
        (lambda: taut.nn.LinfLinear(2, 2.5), "LinfLinear: `out_features` must be a whole"),  # type: ignore
        (
            lambda: taut.nn.OrthonormalLinear(2, 2, method="lu"),
            "must be one of 'retract', 'bjorck'",
        ),
        (lambda: taut.nn.OrthonormalLinear(2, 2, order=0), "`order` must be a whole number >= 1"),
        (
            lambda: taut.nn.OrthonormalLinear(2, 2, num_steps=0),
            "`num_steps` must be a whole number",
        ),
        (lambda: taut.nn.OrthonormalLinear(2, 2, scaling="no"), "`scaling` must be one of 'max'"),
        (
            lambda: taut.nn.ParsevalLinear(2, 2, beta=0.6),
            r"`beta` must lie in \(0, 0.5\]; got beta",
        ),
        (
            lambda: taut.nn.ParsevalLinear(2, 2, beta=0.0),
            r"`beta` must lie in \(0, 0.5\]; got beta",
        ),
        (lambda: taut.nn.MixedLinear(2, 2, p="l3"), "MixedLinear: `p` must be 'l1', 'l2' or"),
    ],
)
def test_layers_teach(build, text):
    with pytest.raises(ArgumentError, match=text):
        build()


def test_constrained_layers_are_abstract():
    with pytest.raises(TypeError, match="abstract"):
        taut.nn.ConstrainedLinear(2, 2)  # type: ignore[abstract]
