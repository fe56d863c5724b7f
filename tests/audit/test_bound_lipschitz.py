"""bound_lipschitz is never below the truth, and refuses by name what it cannot prove."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import taut
from taut.audit import Constants, bound_lipschitz, rule
from taut.audit.rules import _SLOPES
from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.norms import L1, L2, LINF, as_norm

NORMS = ("l1", "l2", "linf")


class Forward(nn.Module):
    """A module from a function and the layers that it uses."""

    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def dense_norm(matrix, norm):
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    return np.linalg.norm(matrix, order)


def sampled_slope(model, shape, norm, pairs=64, seed=0):
    """The steepest of many Jacobians, each measured exactly: a lower bound of the constant."""
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(model).double()
    steepest = 0.0
    for scale in (0.1, 1.0, 10.0):
        for _ in range(pairs // 3):
            x = scale * torch.randn(1, *shape, dtype=torch.float64, generator=generator)
            jacobian = torch.autograd.functional.jacobian(model, x)
            assert isinstance(jacobian, torch.Tensor)
            steepest = max(steepest, dense_norm(jacobian.reshape(-1, x.numel()).numpy(), norm))
    return steepest


@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_layer_has_its_operator_norm(norm):
    layer = nn.Linear(7, 5)
    truth = dense_norm(layer.weight.detach().double().numpy(), norm)
    value = bound_lipschitz(layer, norm).value
    assert truth * (1 - 1e-14) <= value <= truth * (1 + 1e-9)


@pytest.mark.parametrize("constraint", ["orthonormal", "bjorck", "spectral", "parseval"])
@pytest.mark.parametrize("lipschitz", [1.0, 7.0])
def test_networks_of_the_house_keep_what_they_promise(constraint, lipschitz):
    net = taut.nn.mlp([6, 16, 16, 3], constraint=constraint, lipschitz=lipschitz)
    for module in net:
        for parameter in module.parameters():
            parameter.data.add_(torch.randn_like(parameter))
    bound = bound_lipschitz(net)
    assert bound.value <= lipschitz
    assert repr(bound) == f"Bound(<= {lipschitz}, l2, proven)" or constraint == "parseval"
    assert sampled_slope(net.eval(), (6,), "l2") <= bound.value


def test_the_audit_leaves_the_model_alone():
    net = taut.nn.mlp([4, 8, 2])
    net[0].weight.data.mul_(3)  # type: ignore[union-attr]
    before = copy.deepcopy(net.state_dict())
    bound = bound_lipschitz(net)
    assert net.training and bound.value <= 1
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


@pytest.mark.parametrize("p", NORMS)
def test_the_paper_s_universal_networks_compose_through_the_middle_norm(p):
    net = nn.Sequential(
        taut.nn.MixedLinear(5, 12, p), taut.nn.MaxMin(), taut.nn.LinfLinear(12, 8),
        taut.nn.MaxMin(), taut.nn.LinfLinear(8, 1),
    )  # fmt: skip
    assert bound_lipschitz(net, p).value <= 1
    vector_valued = net[:3]
    assert bound_lipschitz(vector_valued, p, output_norm="linf").value <= 1


def test_folded_layers_count_as_what_they_are():
    layer = nn.Linear(3, 4)
    net = nn.Sequential(layer, taut.nn.Scale(-2.5), taut.nn.Abs())
    truth = 2.5 * dense_norm(layer.weight.detach().double().numpy(), "l2")
    assert truth <= bound_lipschitz(net).value <= truth * (1 + 1e-9)


def test_a_residual_adds_one():
    model = Forward(lambda m, x: x + m.f(x), f=taut.nn.mlp([4, 8, 4], lipschitz=3.0))
    bound = bound_lipschitz(model)
    assert 4 * (1 - 1e-5) <= bound.value <= 4


BRANCHES = {
    "difference": lambda m, x: m.f(x) - 0.5 * m.g(x),
    "concatenation": lambda m, x: torch.cat([m.f(x), m.g(x), x], dim=1),
    "stack": lambda m, x: torch.stack([m.f(x), m.g(x)], 1),
    "split": lambda m, x: m.f(x).chunk(2, dim=-1)[1] + m.g(x).split(2, 1)[0],
    "maximum": lambda m, x: torch.maximum(m.f(x), m.g(x)),
    "reshape": lambda m, x: m.f(x).view(x.shape[0], 2, 2).transpose(1, 2).flatten(1) / 3,
    "slices": lambda m, x: m.f(x)[:, 1:3] * torch.tensor([2.0, -3.0], dtype=x.dtype),
    "sums": lambda m, x: m.f(x).sum(1) + m.g(x).mean(dim=1),
    "broadcast": lambda m, x: m.f(x) + m.g(x).sum(1, keepdim=True),
    "product": lambda m, x: F.linear(m.f(x), m.g.weight) @ m.f.weight.detach(),
    "norm": lambda m, x: torch.linalg.vector_norm(m.f(x), dim=1),
    "functions": lambda m, x: F.leaky_relu(m.f(x), 1.7) + F.silu(m.g(x)) + torch.tanh(x),
    "softmax": lambda m, x: F.softmax(5 * m.f(x), dim=1) + torch.logsumexp(x, 1, keepdim=True),
    "largest": lambda m, x: m.f(x).amax(1) - m.g(x).abs().clamp(min=0.1).amin(dim=1),
    "sorting": lambda m, x: taut.functional.max_min(m.f(x)) + taut.functional.full_sort(m.g(x)),
}  # fmt: skip


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("branch", BRANCHES)
def test_a_user_s_own_forward_is_never_steeper_than_its_bound(branch, norm):
    torch.manual_seed(1)
    model = Forward(BRANCHES[branch], f=nn.Linear(4, 4), g=nn.Linear(4, 4))
    bound = bound_lipschitz(model, norm)
    slope = sampled_slope(model, (4,), norm)
    assert slope <= bound.value
    assert bound.value <= 16 * slope  # not so loose as to be useless


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(NORMS))
def test_random_networks_are_never_steeper_than_their_bound(seed, norm):
    torch.manual_seed(seed)
    pick = lambda *options: options[int(torch.randint(len(options), ()))]  # noqa: E731
    modules: list[nn.Module] = []
    width = 4
    for _ in range(int(torch.randint(1, 4, ()))):
        wider = 2 * int(torch.randint(1, 4, ()))
        modules += [nn.Linear(width, wider), pick(*ACTIVATIONS)]
        width = wider
    net = nn.Sequential(*modules)
    assert sampled_slope(net, (4,), norm, pairs=12) <= bound_lipschitz(net, norm).value


ACTIVATIONS = (
    nn.ReLU(), nn.Tanh(), nn.GELU(), nn.SELU(), nn.Hardswish(), nn.PReLU(init=1.5), nn.Softmax(-1),
    taut.nn.MaxMin(), taut.nn.FullSort(), taut.nn.Abs(), taut.nn.Scale(-1.5), nn.Mish(),
)  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in _SLOPES if kind is not nn.RReLU])
def test_the_slopes_of_activations_are_attained_and_not_passed(kind):
    module = kind(1.3) if kind in (nn.LeakyReLU, nn.ELU, nn.CELU) else kind()
    module = nn.Softplus(threshold=40) if kind is nn.Softplus else module
    x = torch.linspace(-12, 12, 400_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(module.double()(x).sum(), x)
    bound = bound_lipschitz(module, input_shape=(3,)).value
    assert slope.abs().max() <= bound * (1 + 1e-12)
    assert slope.abs().max() >= bound * (1 - 1e-3)


def test_gelu_with_tanh_has_a_slope_of_its_own():
    x = torch.linspace(-6, 6, 400_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(F.gelu(x, approximate="tanh").sum(), x)
    bound = bound_lipschitz(nn.GELU("tanh"), input_shape=(3,)).value
    assert 1.128 < slope.abs().max() <= bound


def test_householder_keeps_l2_and_only_l2():
    layer = taut.nn.Householder(6)
    layer.angle.data.uniform_(0, 6)
    assert bound_lipschitz(layer, "l2", (6,)).value == 1
    for norm in ("l1", "linf"):
        bound = bound_lipschitz(layer, norm, (6,)).value
        assert 1.2 < sampled_slope(layer, (6,), norm) <= bound <= 1.4143


def test_batch_norm_in_evaluation_is_its_largest_factor():
    norm = nn.BatchNorm1d(3)
    norm.running_var = torch.tensor([0.25, 1.0, 4.0])
    norm.weight.data = torch.tensor([1.0, -3.0, 5.0])
    model = nn.Sequential(norm).eval()
    truth = float((norm.weight.detach() / (norm.running_var + norm.eps).sqrt()).abs().max())
    assert (
        truth * (1 - 1e-7) <= bound_lipschitz(model, input_shape=(3,)).value <= truth * (1 + 1e-6)
    )


def test_parametrised_layers_are_bounded_as_they_are_used():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
    bound = bound_lipschitz(nn.Sequential(layer)).value
    assert 1 - 1e-6 <= bound <= 1 + 1e-5


def test_weights_of_any_size_keep_their_constant():
    for scale in (1e-30, 1e30):
        layer = nn.Linear(3, 3, bias=False).double()
        layer.weight.data.mul_(scale)
        truth = dense_norm(layer.weight.detach().numpy(), "l2")
        assert truth <= bound_lipschitz(layer).value <= truth * (1 + 1e-9)


class Swish(nn.Module):
    def forward(self, x):
        return torch.exp(x) * x


def around(function):
    return lambda: Forward(function, f=nn.Linear(3, 3))


def behind(*modules):
    return lambda: nn.Sequential(nn.Linear(3, 3), *modules)


MIXES = "mixes the samples"
REFUSED = {
    "unknown function": (behind(Swish()), r"`exp` in `1` \(Swish\)"),
    "layer norm": (behind(nn.LayerNorm(3)), "LayerNorm has no rule"),
    "attention": (lambda: nn.MultiheadAttention(4, 1), "MultiheadAttention has no rule"),
    "batch size": (around(lambda m, x: m.f(x) / x.shape[0]), "size of the batch"),
    "type of x": (
        around(lambda m, x: 5 * m.f(x) if isinstance(x, torch.Tensor) else m.f(x)),
        "branches on",
    ),
    "chance": (around(lambda m, x: m.f(x) * torch.rand(3)), "at random"),
    "pairs of samples": (around(lambda m, x: m.f(x)[:, :1] - x.sum(1)), "the batch"),
    "whole numbers": (around(lambda m, x: m.f(x).to(torch.int64).float()), "whole numbers"),
    "out": (around(lambda m, x: torch.mul(m.f(x), 5, out=torch.empty(0))), "`out=`"),
    "complex": (around(lambda m, x: m.f(x) * 1j), "complex64"),
    "softplus jumps": (behind(nn.Softplus()), "Softplus"),
    "no slope": (behind(nn.LeakyReLU(float("nan"))), "LeakyReLU"),
    "a product": (around(lambda m, x: x * m.f(x)), "product of two"),
    "a quotient": (around(lambda m, x: x / m.f(x)), "division by"),
    "mixed samples": (around(lambda m, x: m.f(x) - m.f(x).mean(0)), MIXES),
    "turned batch": (around(lambda m, x: m.f(x).transpose(0, 1)), MIXES),
    "sorted batch": (behind(taut.nn.FullSort(dim=0)), MIXES),
    "sorted batch, counted back": (behind(taut.nn.FullSort(dim=-2)), MIXES),
    "in place": (around(lambda m, x: m.f(x).mul_(2) + x), "`mul_`"),
    "branches": (around(lambda m, x: x if x.sum() > 0 else m.f(x)), "cannot be followed"),
    "two outputs": (around(lambda m, x: (x, m.f(x))), "must return one tensor"),
    "picked samples": (around(lambda m, x: m.f(x)[[0, 0]]), "keep the batch"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_proven_is_refused_by_name(what):
    make, text = REFUSED[what]
    with pytest.raises(NoRuleError, match=text):
        bound_lipschitz(make())


def test_an_alias_changed_in_place_is_not_overlooked():
    # In eager torch the residual is changed by the in-place ReLU behind its back.
    def forward(m, x):
        y = m.f(x)
        return y + m.relu(y)

    with pytest.raises(NoRuleError, match="in place"):
        bound_lipschitz(Forward(forward, f=nn.Linear(3, 3), relu=nn.ReLU(inplace=True)))
    lone = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    assert bound_lipschitz(lone).value > 0


@pytest.mark.parametrize("kind", [nn.Identity, nn.Dropout, nn.Flatten])
def test_a_view_is_not_taken_for_a_tensor_of_its_own(kind):
    def forward(m, x):
        y = m.f(x)
        m.steep(m.view(y))
        return y

    layers = {"f": nn.Linear(3, 3), "view": kind(), "steep": nn.LeakyReLU(10, inplace=True)}
    with pytest.raises(NoRuleError, match="in place"):
        bound_lipschitz(Forward(forward, **layers))


def test_defaults_of_arguments_take_their_own_branch():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = taut.nn.mlp([3, 3])

        def forward(self, x, mask=None):
            return 5 * self.f(x) if mask is None else x

    assert 4.99 < bound_lipschitz(Masked()).value <= 5


def test_the_model_is_audited_as_evaluation_runs_it():
    model = Forward(lambda m, x: m.f(x) if m.training else 5 * m.f(x), f=taut.nn.mlp([3, 3]))
    assert 4.99 < bound_lipschitz(model.train()).value <= 5
    assert model.training


def test_the_audit_does_not_run_into_the_model_s_own_state():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Linear(3, 3)
            self.calls = nn.Buffer(torch.ones(1))

        def forward(self, x):
            self.calls.mul_(2)
            return self.f(x)

    model: Any = Counting()
    bound_lipschitz(model)
    assert model.calls.item() == 1


@pytest.mark.parametrize("function", [torch.add, torch.sub])
def test_alpha_counts_whatever_the_first_operand_is(function):
    model = Forward(lambda m, x: function(torch.tensor(1.0, dtype=x.dtype), x, alpha=5))
    assert bound_lipschitz(model, input_shape=(3,)).value == 5
    both = Forward(lambda m, x: function(x, other=x, alpha=2))
    assert bound_lipschitz(both, input_shape=(3,)).value == 3


def test_constrained_layers_check_the_shape_too():
    with pytest.raises(ArgumentError, match="wants 100 features instead of 1"):
        bound_lipschitz(taut.nn.mlp([100, 100]), "linf", (1,))


def test_a_replaced_forward_is_refused():
    layer = nn.Linear(3, 3)
    layer.forward = lambda input: 100 * input
    with pytest.raises(NoRuleError, match="replaced on the instance"):
        bound_lipschitz(nn.Sequential(layer))


def test_weights_that_are_not_finite_are_refused():
    layer = nn.Linear(3, 3)
    layer.bias.data[0] = float("nan")
    with pytest.raises(NonFiniteError, match="`bias` of `0`"):
        bound_lipschitz(nn.Sequential(layer))


def test_global_hooks_are_refused():
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, output: None)
    try:
        with pytest.raises(NoRuleError, match="global forward hooks"):
            bound_lipschitz(nn.Linear(3, 3))
    finally:
        handle.remove()


def test_a_forward_of_one_s_own_needs_a_shape_to_be_compared_on():
    with pytest.raises(NoRuleError, match="has a forward of its own"):
        bound_lipschitz(Forward(lambda m, x: x.abs()))


def test_hooks_are_refused():
    net = taut.nn.mlp([3, 4, 1])
    net[0].register_forward_hook(lambda module, args, output: output + 1)  # type: ignore[operator]
    with pytest.raises(NoRuleError, match="`0` .* has forward hooks"):
        bound_lipschitz(net)


def test_a_subclass_is_not_trusted_to_be_its_parent():
    class Steep(nn.Linear):
        def forward(self, input):
            return 100 * super().forward(input)

    layer = Steep(3, 3)
    truth = 100 * dense_norm(layer.weight.detach().double().numpy(), "l2")
    assert bound_lipschitz(layer, input_shape=(3,)).value >= truth * (1 - 1e-12)


def test_sums_need_shapes_and_say_so():
    model = Forward(lambda m, x: x.abs() + x)
    with pytest.raises(NoRuleError, match="Give `input_shape`"):
        bound_lipschitz(model)
    assert bound_lipschitz(model, input_shape=(3,)).value == 2
    with pytest.raises(ArgumentError, match="`input_shape` must be one that the model takes"):
        bound_lipschitz(nn.Sequential(nn.Flatten(), nn.Linear(3, 3)), input_shape=(4,))


def test_a_new_layer_can_be_given_a_rule():
    class Sine(nn.Module):
        def forward(self, x):
            return torch.special.entr(x)

    with pytest.raises(NoRuleError, match="entr"):
        bound_lipschitz(nn.Sequential(Sine()), input_shape=(2,))

    @rule(Sine, method="for the test")
    def _(module, incoming) -> Constants:
        return incoming.constants.scaled(2.0)

    bound = bound_lipschitz(nn.Sequential(nn.Identity(), Sine()), input_shape=(2,))
    assert bound.value == 2
    assert bound.layers[1].method == "for the test"


def test_the_table_says_where_the_constant_comes_from():
    bound = bound_lipschitz(taut.nn.mlp([2, 4, 1], lipschitz=4.0))
    table = str(bound.layers).splitlines()
    assert table[0].split() == ["layer", "kind", "factor", "proven", "by"]
    assert table[3].split() == ["1", "Scale", "2.0", "factor"]
    assert [row.kind for row in bound.layers] == [
        "OrthonormalLinear", "Scale", "MaxMin", "OrthonormalLinear", "Scale",
    ]  # fmt: skip


@pytest.mark.parametrize("norm", [L1, L2, LINF])
def test_norms_are_values_or_names(norm):
    layer = nn.Linear(2, 2)
    assert bound_lipschitz(layer, norm) == bound_lipschitz(layer, norm.name)
    assert as_norm(norm.name) is norm
    with pytest.raises(ArgumentError, match="must be 'l1', 'l2' or 'linf'"):
        bound_lipschitz(layer, "l3")
