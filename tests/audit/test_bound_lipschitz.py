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
from taut.audit import bound_lipschitz
from taut.errors import ArgumentError, NonFiniteError, NoRuleError
from taut.norms import L1, L2, LINF, as_norm
from taut.rules import register, registered_modules
from taut.rules.elementwise import SLOPES

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
def test_networks_of_taut_keep_what_they_promise(constraint, lipschitz):
    net = taut.nn.mlp([6, 16, 16, 3], constraint=constraint, lipschitz=lipschitz)
    for module in net:
        for parameter in module.parameters():
            parameter.data.add_(torch.randn_like(parameter))
    bound = bound_lipschitz(net)
    assert bound.value <= lipschitz
    assert repr(bound) == f"Bound(<= {lipschitz}, l2, proven)" or constraint == "parseval"
    assert bound.holds_for(net)
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


@pytest.mark.slow
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


def has_slope(kind):
    """Whether a module without arguments is an activation of the table of slopes."""
    call = registered_modules()[kind].call
    try:
        return call is not None and kind is not nn.RReLU and call(kind())[0] in SLOPES
    except TypeError:
        return False


@pytest.mark.parametrize("kind", [kind for kind in registered_modules() if has_slope(kind)])
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
    "unknown function": (behind(Swish()), r"`exp in 1 \(Swish\)`: its slope grows"),
    "layer norm": (behind(nn.LayerNorm(3)), "`1` .LayerNorm.: it divides by a statistic"),
    "attention": (lambda: nn.MultiheadAttention(3, 1), "attention multiplies tensors"),
    "batch size": (around(lambda m, x: m.f(x) / x.shape[0]), "size of the batch"),
    "a batch of one": (
        around(lambda m, x: m.f(x) * (1 + 999 * (x.shape[0] == 1))),
        "another function for a batch of one",
    ),
    "a slice by the batch": (
        around(lambda m, x: m.f(x)[:, : x.shape[0] // 64]),
        "cannot be captured",
    ),
    "chance": (around(lambda m, x: m.f(x) * torch.rand(3)), "computes a constant"),
    "pairs of samples": (around(lambda m, x: m.f(x)[:, :1] - x.sum(1)), MIXES),
    "whole numbers": (around(lambda m, x: m.f(x).to(torch.int64).float()), "whole numbers"),
    "narrow numbers": (around(lambda m, x: m.f(x).half().float()), "casts .* which rounds"),
    "other bits": (around(lambda m, x: m.f(x).view(torch.int32).view(torch.float32)), "int32"),
    "complex": (around(lambda m, x: m.f(x) * 1j), "complex64"),
    "softplus jumps": (behind(nn.Softplus()), "jumps there"),
    "no slope": (behind(nn.LeakyReLU(float("nan"))), "LeakyReLU"),
    "a product": (around(lambda m, x: x * m.f(x)), "product of two"),
    "a quotient": (around(lambda m, x: x / m.f(x)), "division by"),
    "mixed samples": (around(lambda m, x: m.f(x) - m.f(x).mean(0)), MIXES),
    "turned batch": (around(lambda m, x: m.f(x).transpose(0, 1)), MIXES),
    "sorted batch": (behind(taut.nn.FullSort(dim=0)), MIXES),
    "sorted batch, counted back": (behind(taut.nn.FullSort(dim=-2)), MIXES),
    "branches": (around(lambda m, x: x if x.sum() > 0 else m.f(x)), "cannot be captured"),
    "two outputs": (around(lambda m, x: (x, m.f(x))), "must return one tensor"),
    "picked samples": (around(lambda m, x: m.f(x)[[0, 0]]), "mixes|no record"),
    "all dimensions": (around(lambda m, x: m.f(x).amax() + x), "dim|no record|mixes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_proven_is_refused_by_name(what):
    make, text = REFUSED[what]
    with pytest.raises(NoRuleError, match=text):
        bound_lipschitz(make())


def slope_at_ones(model, shape):
    """The norm of the Jacobian at one point, in float64."""
    x = torch.ones(1, *shape, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(copy.deepcopy(model).double(), x)
    return dense_norm(jacobian.reshape(-1, x.numel()).numpy(), "l2")  # type: ignore[union-attr]


@pytest.mark.slow
def test_work_in_place_is_followed_as_eager_torch_does_it():
    def changed_behind_its_back(m, x):
        y = m.f(x)
        return y + m.relu(y)  # in eager torch y itself is changed, so this is 2 relu(y)

    def through_a_view(m, x):
        y = m.f(x)
        m.steep(m.view(y))
        return y

    def added_in_place(m, x):
        out = m.f(x)
        out += x
        return out.mul_(2)

    f = nn.Linear(3, 3)
    f.weight.data, f.bias.data = torch.eye(3), torch.full((3,), -2.0)
    relu, steep = nn.ReLU(inplace=True), nn.LeakyReLU(10, inplace=True)
    assert bound_lipschitz(Forward(changed_behind_its_back, f=f, relu=relu)).value == pytest.approx(
        2, rel=1e-12
    )
    for view in (nn.Identity(), nn.Dropout(), nn.Flatten()):
        model = Forward(through_a_view, f=f, view=view, steep=steep).eval()
        assert slope_at_ones(model, (3,)) == 10
        assert bound_lipschitz(model).value == pytest.approx(10, rel=1e-12)
    assert bound_lipschitz(Forward(added_in_place, f=f)).value == pytest.approx(4, rel=1e-12)
    lone = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    assert bound_lipschitz(lone).value > 0


def test_work_in_place_inside_a_residual_changes_its_way_around():
    body = nn.Sequential(nn.LeakyReLU(10, inplace=True), nn.Identity())
    block = taut.nn.Residual(body, mode="add")
    model = nn.Sequential(nn.Linear(3, 3), block).eval()
    model[0].weight.data, model[0].bias.data = torch.eye(3), torch.full((3,), -2.0)  # type: ignore[union-attr]
    assert slope_at_ones(model, (3,)) == 20
    assert bound_lipschitz(model, input_shape=(3,)).value >= 20


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


class CountsInABuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 3)
        self.calls = nn.Buffer(torch.ones(1))

    def forward(self, x):
        self.calls.mul_(2)
        return self.f(x)


class CountsInAnAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.f(x) * (1000 if self.calls > 9 else 1)


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(3, 3)
        self.seen = []

    def forward(self, x):
        self.seen.append(1)
        return self.f(x)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (CountsInABuffer, "writes the buffer calls"),
        (CountsInAnAttribute, "writes the attribute `calls`"),
        (Remembers, "writes the attribute `seen`"),
    ],
)
def test_forwards_with_state_are_refused_and_their_state_is_left_alone(kind, text):
    model: Any = kind()
    before = copy.deepcopy((dict(model.named_buffers()), getattr(model, "calls", None)))
    with pytest.raises(NoRuleError, match=text):
        bound_lipschitz(model)
    assert str((dict(model.named_buffers()), getattr(model, "calls", None))) == str(before)
    assert getattr(model, "seen", []) == []


@pytest.mark.parametrize("function", [torch.add, torch.sub])
def test_alpha_counts_whatever_the_first_operand_is(function):
    model = Forward(lambda m, x: function(torch.tensor(1.0, dtype=x.dtype), x, alpha=5))
    assert bound_lipschitz(model, input_shape=(3,)).value == 5
    both = Forward(lambda m, x: function(x, other=x, alpha=2))
    assert bound_lipschitz(both, input_shape=(3,)).value == 3


def test_constrained_layers_check_the_shape_too():
    with pytest.raises(ArgumentError, match="`input_shape` must be one that the model takes"):
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


def test_a_new_layer_can_be_given_a_record():
    class Sine(nn.Module):
        def forward(self, x):
            return torch.special.entr(x)

    with pytest.raises(NoRuleError, match="entr"):
        bound_lipschitz(nn.Sequential(Sine()), input_shape=(2,))

    register(Sine, proof="for the test", constants=lambda call: call.x.constants.scaled(2.0))

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
    assert taut.audit.audit(layer, norm.name).norm is norm
    assert bound_lipschitz(layer, norm) == bound_lipschitz(layer, norm.name)
    assert as_norm(norm.name) is norm
    with pytest.raises(ArgumentError, match="must be 'l1', 'l2' or 'linf'"):
        bound_lipschitz(layer, "l3")  # type: ignore[arg-type]
