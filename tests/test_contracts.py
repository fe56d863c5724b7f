"""Every contract of a constrained layer, on every row of the table of `cases.py`."""

import copy
import inspect
import io
import pickle
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import taut.nn
from cases import (
    ACTIVATIONS,
    BELOW,
    CONVOLUTIONS,
    DENSE,
    EVERY_LAYER,
    PARTS,
    SHAPES,
    AnyCase,
    operator_norm,
)
from taut.errors import ArgumentError, DtypeError, NonFiniteError
from taut.linalg import even_vector
from taut.norms import L2

dense = pytest.mark.parametrize("case", DENSE, ids=str)
kept = pytest.mark.parametrize("case", [case for case in DENSE if case.kept], ids=str)
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
every = pytest.mark.parametrize("case", EVERY_LAYER, ids=str)
CONSTRAINED = [case for case in EVERY_LAYER if isinstance(case.make(), taut.nn.ConstrainedLayer)]
constrained = pytest.mark.parametrize("case", CONSTRAINED, ids=str)
modes = pytest.mark.parametrize("mode", ["train", "eval"])


def test_every_public_layer_has_a_row():
    public = {getattr(taut.nn, name) for name in taut.nn.__all__}
    layers = {
        layer
        for layer in public
        if inspect.isclass(layer) and issubclass(layer, nn.Module) and not inspect.isabstract(layer)
    }
    rows = {case.layer for case in (*DENSE, *ACTIVATIONS, *CONVOLUTIONS)}
    assert layers - rows - set(PARTS) == set()


def test_every_method_has_a_row():
    seen = {(case.layer, getattr(case.make(4, 4), "method", None)) for case in DENSE}
    for layer in {layer for layer, method in seen if method is not None}:
        # A wrong method is answered with the list of the right ones.
        extra: dict[str, Any] = {"p": "l2"} if layer is taut.nn.MixedLinear else {}
        with pytest.raises(ArgumentError, match="`method` must be one of (.*); got") as caught:
            layer(2, 2, method="?", **extra)
        for method in re.findall(r"'(\w+)'", str(caught.value)):
            assert (layer, method) in seen


@dense
def test_a_layer_knows_its_norms(case):
    layer = case.make(4, 4)
    assert (layer.input_norm, layer.output_norm) == (case.input_norm, case.output_norm)


def used_weight(layer):
    """The weight of a forward pass, seen from outside: the image of the identity."""
    assert layer.bias is None
    x = torch.eye(layer.in_features, dtype=layer.weight.dtype)
    return layer(x).detach().T


def set_weight(layer, weight):
    layer.weight.data = weight.to(layer.weight.dtype)
    return layer


def scramble(layer):
    """A weight that is far from feasible, where a layer has one."""
    if isinstance(layer, taut.nn.ConstrainedLayer):
        layer.weight.data.normal_(std=2)
    return layer


def random_weight(shape, scale=1.0, dtype=torch.float64):
    return scale * torch.randn(shape[1], shape[0], dtype=dtype)


# What a layer computes


@dense
@shapes
@modes
def test_the_weight_of_a_forward_equals_the_oracle(case, shape, mode):
    layer = case.make(*shape, bias=False, dtype=torch.float64)
    weight = random_weight(shape, 0.7)
    set_weight(layer, weight.clone()).train(mode == "train")
    oracle = case.trained if mode == "train" else case.evaluated
    # Retraction is cheaper than the nearest point and lands within the tolerance of it.
    tol = 1.5e-2 if case.name == "orthonormal-retract" else 1e-10
    np.testing.assert_allclose(used_weight(layer).numpy(), oracle(weight.numpy()), atol=tol)
    case.check_feasible(used_weight(layer), mode)


@dense
@modes
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-12, 1e-3, 1.0, 30.0, 1e12, 1e38])
@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (8, 8)], ids=str)
def test_feasible_for_weights_of_any_size(case, mode, scale, shape):
    layer = case.make(*shape, bias=False).train(mode == "train")
    set_weight(layer, random_weight(shape).clamp(-3, 3) * scale)
    case.check_feasible(used_weight(layer), mode)
    case.check_feasible(layer.effective_weight(), mode)


@dense
@modes
def test_feasible_for_weights_near_the_largest_double(case, mode):
    layer = case.make(6, 6, bias=False, dtype=torch.float64).train(mode == "train")
    set_weight(layer, 1.7e308 * (2 * torch.rand(6, 6, dtype=torch.float64) - 1))
    case.check_feasible(used_weight(layer), mode)


@dense
@modes
@pytest.mark.parametrize(
    "weight", [[[2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 3.0]]]
)
def test_feasible_for_awkward_weights(case, mode, weight):
    weight = torch.tensor(weight)
    layer = case.make(2, len(weight), bias=False).train(mode == "train")
    set_weight(layer, weight)
    case.check_feasible(used_weight(layer), mode)


@dense
@modes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_feasible_for_weights_that_the_fixed_start_of_iterations_cannot_see(case, mode, dtype):
    start = even_vector(6, torch.empty(0, dtype=dtype))
    weight = torch.zeros(3, 6, dtype=dtype)
    weight[1, 0], weight[1, 1] = start[1], -start[0]
    assert not (weight @ start).any()
    layer = case.make(6, 3, bias=False, dtype=dtype).train(mode == "train")
    set_weight(layer, weight)
    case.check_feasible(used_weight(layer), mode)
    layer(torch.ones(6, dtype=dtype)).sum().backward()
    assert torch.isfinite(layer.weight.grad).all()


@dense
@modes
def test_an_exactly_zero_weight_gives_finite_outputs_and_gradients(case, mode):
    layer = case.make(6, 4).train(mode == "train")
    set_weight(layer, torch.zeros(4, 6))
    y = layer(torch.randn(3, 6))
    y.square().sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(layer.weight.grad).all()


@pytest.mark.parametrize("case", [case for case in DENSE if case.output_norm == L2], ids=str)
@modes
def test_l2_layers_of_width_256_stay_below_one(case, mode):
    layer = case.make(256, 256, bias=False).train(mode == "train")
    for scale in (1e-3, 1.0):
        set_weight(layer, layer.weight.data + scale * torch.randn(256, 256))
        case.check_feasible(used_weight(layer), mode)


# Slopes and Jacobians


@dense
@shapes
@modes
def test_jacobian_norm(case, shape, mode):
    layer = set_weight(case.make(*shape), random_weight(shape, 2)).train(mode == "train")
    jacobian = torch.autograd.functional.jacobian(layer, torch.randn(shape[0]))
    case.check_feasible(jacobian, mode)  # type: ignore[arg-type]
    if mode in case.orthonormal:
        norm = operator_norm(jacobian.double().numpy(), L2, L2)  # type: ignore[union-attr]
        assert abs(norm - 1) <= BELOW[mode]


def slopes(net, x, z, p, q):
    return q.vector(net(x) - net(z)) / p.vector(x - z)


@dense
@modes
def test_sampled_slopes_of_a_network_never_pass_one(case, mode):
    def block(width, out):
        return case.make(width, out, dtype=torch.float64)

    # After a mixed layer, further layers measure in L-inf.
    inner = (
        block
        if case.input_norm == case.output_norm
        else partial(taut.nn.LinfLinear, dtype=torch.float64)
    )
    net: Any = nn.Sequential(
        block(6, 8), taut.nn.MaxMin(), inner(8, 8), taut.nn.GroupSort(4), inner(8, 3)
    )
    for layer in net:
        if hasattr(layer, "weight"):
            set_weight(layer, 3 * torch.randn_like(layer.weight))
    net.train(mode == "train")
    x = 3 * torch.randn(200, 6, dtype=torch.float64)
    steps = torch.randn_like(x) * 10 ** (-6 * torch.rand(200, 1, dtype=torch.float64))
    p, q = case.input_norm, case.output_norm
    with torch.no_grad():
        assert slopes(net, x, x + steps, p, q).max() <= 1 + 1e-9
        assert slopes(net, x, x.flip(0) + steps, p, q).max() <= 1 + 1e-9
    # Pairs that climb: first far apart, then so close that they see one linear piece.
    for size in (1.0, 1e-4):
        a, b = x[:32].clone(), (x + size * steps.sign())[:32].clone()
        for _ in range(25):
            for end in (a, b):
                end.requires_grad_()
            slope = slopes(net, a, b, p, q)
            assert slope.detach().max() <= 1 + 1e-9
            ga, gb = torch.autograd.grad(slope.sum(), (a, b))
            with torch.no_grad():
                a, b = a + 0.1 * size**2 * ga, b + 0.1 * size**2 * gb


# Training at any learning rate

OPTIMISERS = {
    "adam-1e-3": partial(torch.optim.Adam, lr=1e-3),
    "adam-1e-2": partial(torch.optim.Adam, lr=1e-2),
    "adam-3e-2": partial(torch.optim.Adam, lr=3e-2),
    "adam-0.1": partial(torch.optim.Adam, lr=0.1),
    "adam-1": partial(torch.optim.Adam, lr=1.0),
    "adam-fused-0.1": partial(torch.optim.Adam, lr=0.1, fused=True),
    "adam-foreach-0.1": partial(torch.optim.Adam, lr=0.1, foreach=True),
    "adamw-decay": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5),
    "adamw-to-zero": partial(torch.optim.AdamW, lr=2.0, weight_decay=0.5),
    "adamw-fused-decay": partial(torch.optim.AdamW, lr=1e-2, weight_decay=0.5, fused=True),
    "sgd-1": partial(torch.optim.SGD, lr=1.0),
    "sgd-10": partial(torch.optim.SGD, lr=10.0, momentum=0.9, nesterov=True),
    "sgd-100": partial(torch.optim.SGD, lr=100.0),
    "sgd-fused-10": partial(torch.optim.SGD, lr=10.0, fused=True),
}


def layers_of(net):
    return [layer for layer in net if hasattr(layer, "effective_weight")]


def check_training(case, net, optimiser, steps, accumulate=1):
    """Steps, and looks at the weights of every forward, in training and in evaluation."""
    x = 3 * torch.randn(24, layers_of(net)[0].in_features)
    labels = torch.randint(layers_of(net)[-1].out_features, (24,))
    for _ in range(steps):
        optimiser.zero_grad()
        for part in torch.arange(24).chunk(accumulate):
            out = net(x[part])
            assert torch.isfinite(out).all()
            nn.functional.cross_entropy(10 * out, labels[part]).backward()
        for layer in layers_of(net):
            assert torch.isfinite(layer.weight.grad).all()
        optimiser.step()
        # Evaluation comes first: it must not lean on what training has tidied up.
        for mode in ("eval", "train"):
            net.train(mode == "train")
            with torch.no_grad():
                net(x)
            for layer in layers_of(net):
                case.check_feasible(used_weight(layer), mode)
    return net


@dense
@pytest.mark.parametrize("optimiser", OPTIMISERS.values(), ids=OPTIMISERS)
def test_feasible_at_any_learning_rate(case, optimiser):
    net = nn.Sequential(
        case.make(6, 12, bias=False), taut.nn.MaxMin(), case.make(12, 4, bias=False)
    )
    check_training(case, net, optimiser(net.parameters()), steps=6)


@pytest.mark.parametrize(
    "optimiser", ["adam-1e-3", "adam-1e-2", "adam-3e-2", "adam-0.1", "sgd-100"]
)
def test_feasible_at_any_learning_rate_for_a_network_of_width_256(optimiser):
    net = taut.nn.mlp([64, 256, 256, 10], constraint=partial(taut.nn.OrthonormalLinear, bias=False))
    check_training(DENSE[0], net, OPTIMISERS[optimiser](net.parameters()), steps=3)


@dense
def test_feasible_with_gradient_accumulation(case):
    net = nn.Sequential(case.make(6, 8, bias=False), taut.nn.MaxMin(), case.make(8, 4, bias=False))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.1)
    check_training(case, net, optimiser, steps=3, accumulate=3)


def write_through_data(layer, weight):
    layer.weight.data.copy_(weight)


def replace_data(layer, weight):
    layer.weight.data = weight.clone()


def copy_in_place(layer, weight):
    with torch.no_grad():
        layer.weight.copy_(weight)


def load(layer, weight):
    layer.load_state_dict({**layer.state_dict(), "weight": weight})


def load_by_assignment(layer, weight):
    layer.load_state_dict({**layer.state_dict(), "weight": weight.clone()}, assign=True)


def new_parameter(layer, weight):
    layer.weight = nn.Parameter(weight.clone())


def write_through_numpy(layer, weight):
    layer.weight.detach().numpy()[:] = weight.numpy()


def one_entry(layer, weight):
    layer.weight.data.view(-1)[0] += 0.5


WAYS = [
    write_through_data,
    replace_data,
    copy_in_place,
    load,
    load_by_assignment,
    new_parameter,
    write_through_numpy,
    one_entry,
]
ways = pytest.mark.parametrize("write", WAYS, ids=lambda way: way.__name__)


@dense
@ways
@pytest.mark.parametrize("order", ["eval-train-eval", "train-eval-train", "eval-eval-train"])
def test_every_way_to_change_a_weight_is_seen_at_once(case, write, order):
    layer = case.make(7, 5, bias=False, dtype=torch.float64)
    for mode in order.split("-"):
        layer.train(mode == "train")
        write(layer, 2 * torch.randn(5, 7, dtype=torch.float64))
        oracle = case.trained if mode == "train" else case.evaluated
        expected = oracle(layer.weight.detach().numpy().copy())
        case.check_feasible(used_weight(layer), mode)
        tol = 3e-2 if case.name == "orthonormal-retract" else 1e-10
        np.testing.assert_allclose(used_weight(layer).numpy(), expected, atol=tol)


@kept
@ways
def test_training_after_the_evaluation_of_a_changed_weight_still_writes_the_feasible_one(
    case, write
):
    layer = case.make(7, 5, bias=False)
    write(layer, 2 * torch.randn(5, 7))
    layer.eval()
    used_weight(layer)
    layer.train()
    seen = used_weight(layer)
    case.check_feasible(layer.weight, "train")
    assert torch.equal(seen, layer.weight)


@dense
def test_double_and_back(case):
    layer = case.make(7, 5, bias=False)
    for cast in (layer.double, layer.float, layer.double):
        layer.weight.data.mul_(3)
        cast()
        for mode in ("eval", "train", "eval"):
            layer.train(mode == "train")
            seen = used_weight(layer)
            assert seen.dtype == layer.weight.dtype
            case.check_feasible(seen, mode)


@constrained
def test_inference_mode_leaves_no_trace(case):
    # Tensors made in inference mode cannot be saved for backward; none may be remembered.
    layer = case.make()
    x = torch.randn(case.shape, dtype=torch.float64)
    for mode in ("eval", "train"):
        for following in ("eval", "train"):
            scramble(layer).train(mode == "train")
            with torch.inference_mode():
                layer(x)
            layer.train(following == "train")
            layer(x.requires_grad_()).sum().backward()
            assert torch.isfinite(layer.weight.grad).all()


# Evaluation


@every
def test_evaluation_is_deterministic_and_writes_nothing(case):
    layer = scramble(case.make()).eval()
    before = copy.deepcopy(layer.state_dict())
    x = torch.randn(case.shape, dtype=torch.float64)
    first = layer(x)
    for _ in range(3):
        assert torch.equal(layer(x), first)
    layer(x.requires_grad_()).sum().backward()
    assert torch.equal(layer(x), first)
    after = layer.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@dense
@modes
def test_effective_weight_is_the_weight_of_the_forward_and_differentiable(case, mode):
    layer = set_weight(case.make(9, 6, bias=False), 2 * torch.randn(6, 9)).train(mode == "train")
    assert torch.equal(layer.effective_weight(), used_weight(layer))
    layer.effective_weight().square().sum().backward()
    assert torch.isfinite(layer.weight.grad).all()


WIDE = [AnyCase(f"{case}-wide", partial(case.make, 64, 64), (2, 64)) for case in DENSE if case.kept]


@pytest.mark.parametrize("case", [*CONSTRAINED, *WIDE], ids=str)
def test_training_forwards_of_an_unchanged_weight_leave_it_alone(case):
    layer = scramble(case.make().float())
    layer(torch.randn(case.shape))
    once = layer.weight.detach().clone()
    for _ in range(3):
        layer(torch.randn(case.shape))
        assert torch.equal(layer.weight, once)


# What cannot be repaired


@constrained
@modes
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_not_finite_raises_and_names_the_layer(case, mode, value):
    layer = case.make().train(mode == "train")
    x = torch.randn(case.shape, dtype=torch.float64)
    layer(x)
    layer.weight.data.view(-1)[1] = value
    for _ in range(2):
        with pytest.raises(
            NonFiniteError, match=rf"{type(layer).__name__}\(.*must be finite; got NaN"
        ):
            layer(x)


@dense
@modes
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_refused(case, mode, dtype):
    with pytest.raises(DtypeError, match="must be float32 or float64; got"):
        case.make(5, 4, dtype=dtype)
    layer = case.make(5, 4).train(mode == "train").to(dtype)
    with pytest.raises(DtypeError, match=f"{type(layer).__name__}: the weight must be float32"):
        layer(torch.randn(2, 5, dtype=dtype))


@dense
@modes
def test_autocast_computes_in_the_dtype_of_the_weight(case, mode):
    layer = set_weight(case.make(24, 16, bias=False), torch.randn(16, 24)).train(mode == "train")
    with torch.autocast("cpu", torch.bfloat16):
        seen = used_weight(layer)
    assert seen.dtype == torch.float32
    case.check_feasible(seen, mode)
    assert torch.equal(seen, used_weight(layer))


@dense
@modes
def test_the_effective_weight_is_feasible_under_autocast(case, mode):
    layer = set_weight(case.make(24, 16, bias=False), torch.randn(16, 24)).train(mode == "train")
    with torch.autocast("cpu", torch.bfloat16):
        weight = layer.effective_weight()
    assert weight.dtype == torch.float32
    case.check_feasible(weight, mode)
    case.check_feasible(used_weight(layer), mode)


# Copies


WIDEST = [AnyCase(f"{case}-256", partial(case.make, 256, 256), (8, 256)) for case in DENSE]


@pytest.mark.parametrize("case", [*EVERY_LAYER, *WIDEST], ids=str)
@pytest.mark.parametrize("way", ["state_dict", "assign", "deepcopy", "pickle", "save"])
def test_round_trips_keep_outputs_to_the_bit(case, way):
    layer = case.make().float()
    if any(True for _ in layer.parameters()):
        optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
        for _ in range(2):
            optimiser.zero_grad()
            layer(torch.randn(case.shape)).square().sum().backward()
            optimiser.step()
    x = torch.randn(case.shape)
    layer(x)
    expected = layer.eval()(x)
    if way == "deepcopy":
        twin = copy.deepcopy(layer)
    elif way == "pickle":
        twin = pickle.loads(pickle.dumps(layer))
    elif way == "save":
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        twin = torch.load(buffer, weights_only=False)
    else:
        twin = case.make().float().eval()
        twin.load_state_dict(layer.state_dict(), assign=way == "assign")
    assert not twin.training
    assert torch.equal(twin(x), expected)
    assert torch.equal(layer(x), expected)


@dense
@modes
def test_a_copy_trains_on_its_own(case, mode):
    layer = case.make(6, 6).train(mode == "train")
    x = torch.randn(5, 6)
    expected = layer(x).detach().clone()
    weight = layer.weight.detach().clone()
    twin = copy.deepcopy(layer).train()
    optimiser = torch.optim.SGD(twin.parameters(), lr=1.0)
    for _ in range(3):
        optimiser.zero_grad()
        twin(x).square().sum().backward()
        optimiser.step()
    twin(x)
    assert torch.equal(layer.weight, weight)
    assert not torch.allclose(twin(x), expected)
    assert torch.equal(layer(x), expected)


@dense
@modes
@pytest.mark.parametrize("leading", [(), (1,), (4,), (2, 3), (0,), (3, 0, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_dtypes_are_kept(case, mode, leading, dtype):
    layer = case.make(6, 4, dtype=dtype).train(mode == "train")
    x = torch.randn(*leading, 6, dtype=dtype, requires_grad=True)
    y = layer(x)
    assert y.shape == (*leading, 4)
    assert y.dtype == dtype
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape
    assert layer.weight.grad.shape == (4, 6)
    assert layer.bias.grad.shape == (4,)


@dense
def test_a_frozen_weight_gets_no_gradient(case):
    layer = case.make(6, 4)
    layer.weight.requires_grad_(False)
    for mode in ("train", "eval"):
        layer.train(mode == "train")
        x = torch.randn(3, 6, requires_grad=True)
        layer(x).sum().backward()
        assert x.grad is not None and layer.weight.grad is None


@dense
def test_printing_names_the_arguments(case):
    text = repr(case.make(6, 4, bias=False))
    assert text.startswith(f"{case.layer.__name__}(in_features=6, out_features=4, bias=False")
