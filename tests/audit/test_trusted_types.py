"""What a module's type promises is believed only where nothing else can change what it computes."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import taut
from taut.errors import NoRuleError

pytestmark = pytest.mark.slow


class Offset(nn.Module):
    """The input as the offset of a product of stored tensors."""

    rows: torch.Tensor
    weight: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.ones(1, 3))
        self.register_buffer("weight", 1e-3 * torch.eye(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(x, self.rows.expand(x.shape[0], -1), self.weight)


class Einsum(nn.Module):
    def __init__(self, equation: str, *shape: int) -> None:
        super().__init__()
        self.equation = equation
        self.register_buffer("weight", torch.ones(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum(self.equation, x, self.weight)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Offset(), (3,)),
        (Einsum("bi,ij->bj", 3, 1), (1,)),
        (Einsum("bi,i->bi", 3), (1,)),
        (Einsum("bi,ij->bj", 1, 1), (3,)),
    ],
)
def test_operands_that_change_places_or_repeat_are_refused(model, shape):
    with pytest.raises(NoRuleError, match=r"addmm is supported only|einsum that repeats"):
        taut.bound_lipschitz(model, input_shape=shape)


def test_the_same_einsum_of_fitting_sizes_is_bounded():
    bound = taut.bound_lipschitz(Einsum("bi,ij->bj", 3, 1), input_shape=(3,))
    assert 3**0.5 <= bound.value <= 3**0.5 * (1 + 1e-9)


class SteepCall(taut.nn.OrthonormalLinear):  # type: ignore[misc]
    def __call__(self, *args, **kwargs):
        return 10 * super().__call__(*args, **kwargs)


class SteepProduct(taut.nn.OrthonormalLinear):  # type: ignore[misc]
    def _affine(self, *args, **kwargs):
        return 10 * super()._affine(*args, **kwargs)


class FlatWeight(taut.nn.OrthonormalLinear):  # type: ignore[misc]
    def evaluation_weight(self):
        return 0.1 * super().evaluation_weight()


class SteepReLU(nn.RReLU):
    def __call__(self, x):
        return 10 * super().__call__(x)


@pytest.mark.parametrize(
    "layer", [SteepCall(3, 3), SteepProduct(3, 3), FlatWeight(3, 3), SteepReLU()]
)
def test_subclasses_that_compute_something_else_are_not_their_parents(layer):
    """They are captured, and bounded truly, or refused."""
    model = nn.Sequential(layer).eval()
    x = torch.randn(200, 3)
    with torch.no_grad():
        steepest = ((model(x + 1e-2) - model(x)).norm(dim=1) / (1e-2 * 3**0.5)).max().item()
    try:
        bound = taut.bound_lipschitz(model, input_shape=(3,)).value
    except NoRuleError:
        return
    assert steepest <= bound * (1 + 1e-3)


class Named(taut.nn.OrthonormalLinear):  # type: ignore[misc]
    """A subclass that only says more."""

    purpose = "features"

    def describe(self) -> str:
        return self.purpose


def test_subclasses_that_only_add_are_their_parents():
    assert taut.bound_lipschitz(nn.Sequential(Named(3, 3))).value <= 1


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, torch.optim.swa_utils.AveragedModel], ids=["parallel", "averaged"]
)
def test_hooks_and_forwards_of_wrappers_count(wrap):
    hooked = wrap(nn.Linear(3, 3)).eval()
    assert taut.bound_lipschitz(hooked).value > 0
    handle = hooked.register_forward_hook(lambda module, args, output: 10 * output)
    with pytest.raises(NoRuleError, match="has forward hooks"):
        taut.bound_lipschitz(hooked)
    handle.remove()
    hooked.forward = lambda x: 10 * x
    with pytest.raises(NoRuleError, match="replaced on the instance"):
        taut.bound_lipschitz(hooked)


def test_attributes_of_the_users_own_are_no_arguments():
    layer = nn.ELU()
    layer.scale = layer.input_scale = 0.1  # arguments of the operation that the module never passes
    assert taut.bound_lipschitz(nn.Sequential(layer)).value >= 1


class Noise(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * (1 + torch.rand(()))


def test_weights_that_change_between_readings_are_refused():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", Noise())
    with pytest.raises(NoRuleError, match="changes from one reading to the next"):
        taut.bound_lipschitz(nn.Sequential(layer))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).double())


def test_mixed_types_are_refused_in_a_sentence():
    with pytest.raises(NoRuleError, match="Use one dtype throughout the forward"):
        taut.bound_lipschitz(Mixed(), input_shape=(3,))


def test_a_bound_does_not_hold_for_another_attribute_of_a_registered_layer():
    class Times(nn.Module):
        factor = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

    taut.rules.register(
        Times,
        proof="factor",
        constants=lambda call: call.x.constants.scaled(abs(call.module.factor)),
    )
    times = Times()
    model = nn.Sequential(nn.Linear(3, 3), times)
    bound = taut.bound_lipschitz(model)
    assert bound.holds_for(model)
    times.factor = 10.0
    assert not bound.holds_for(model)


class SteepWeight(nn.Parameter):
    """A stored tensor with products of its own, as quantised weights have."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return 100 * result if func is nn.functional.linear else result


def test_weights_that_compute_are_refused():
    layer = nn.Linear(3, 3)
    layer.weight = SteepWeight(layer.weight.detach())
    with pytest.raises(NoRuleError, match="is a SteepWeight"):
        taut.bound_lipschitz(nn.Sequential(layer))


class SteepAttribute(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return 100 * result if func is nn.functional.linear else result

    def __deepcopy__(self, memo):
        return self.detach().clone()


def test_plain_attributes_that_compute_are_refused():
    layer: Any = nn.Linear(3, 3, bias=False)
    weight = layer.weight.detach().as_subclass(SteepAttribute)
    del layer.weight
    layer.weight = weight
    layer.lowest = torch.tensor(torch.inf)  # of no concern to the forward
    with pytest.raises(NoRuleError, match="is a SteepAttribute"):
        taut.bound_lipschitz(nn.Sequential(layer, nn.ReLU()))
    layer.weight = weight.as_subclass(torch.Tensor)
    assert taut.bound_lipschitz(nn.Sequential(layer, nn.ReLU())).value > 0


def test_replaced_methods_behind_a_forward_are_refused():
    layer = nn.Conv1d(2, 2, 1)
    layer.__dict__["_conv_forward"] = lambda x, weight, bias: 100 * x
    with pytest.raises(NoRuleError, match="_conv_forward of `0`"):
        taut.bound_lipschitz(nn.Sequential(layer), input_shape=(2, 5))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_is_refused():
    traced: Any = torch.jit.trace(nn.Linear(3, 3), torch.ones(1, 3))
    with pytest.raises(NoRuleError, match="compiled by TorchScript"):
        taut.bound_lipschitz(nn.Sequential(traced))


class SteepInTraining(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 10 * x if torch.is_grad_enabled() else 1 * x


def test_another_function_under_autograd_is_refused():
    with pytest.raises(NoRuleError, match="another result than the forward"):
        taut.bound_lipschitz(SteepInTraining(), input_shape=(3,))


class Reflected(nn.Module):
    angle: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("angle", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return taut.functional.householder(x, self.angle)


def test_factors_computed_from_stored_angles_are_refused():
    with pytest.raises(NoRuleError, match="computes a constant in the forward"):
        taut.bound_lipschitz(Reflected(), input_shape=(4,))


def test_weights_kept_as_plain_attributes_count():
    layer = nn.Linear(3, 3, bias=False)
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    model = nn.Sequential(layer)
    bound = taut.bound_lipschitz(model).value
    assert torch.linalg.matrix_norm(weight.double(), 2) <= bound
    assert taut.certify(model, torch.ones(1, 3)).radius > 0


class Wrapped(nn.Module):
    """Returns its result inside a container, as models of some libraries do."""

    def __init__(self, container: type) -> None:
        super().__init__()
        self.container = container

    def forward(self, x: torch.Tensor):
        return self.container([("logits", 2 * x)]) if self.container is dict else (2 * x,)


@pytest.mark.parametrize("container", [dict, tuple])
def test_results_inside_containers_are_refused_in_a_sentence(container):
    with pytest.raises(NoRuleError, match=f"must return a tensor itself; got {container.__name__}"):
        taut.bound_lipschitz(Wrapped(container), input_shape=(3,))


class Function(nn.Module):
    """A forward of its own beside a layer and an object."""

    def __init__(self, forward: Any, layer: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.function, self.seen = layer, forward, Seen()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


class Seen:
    calls = 0


def test_stored_tensors_do_not_tell_the_size_of_the_batch():
    def steep_in_large_batches(model, x):
        ends = torch.full((x.shape[0], 1), 1000.0), torch.ones(100, 1)
        return x * torch.cat(ends)[50]

    model = Function(steep_in_large_batches)
    assert torch.equal(model(torch.ones(51, 4)), torch.full((51, 4), 1000.0))
    with pytest.raises(NoRuleError, match="mixes the samples of a batch"):
        taut.bound_lipschitz(model, input_shape=(4,))


def test_a_stored_row_for_each_sample_is_followed():
    token = nn.Parameter(torch.ones(1, 2))
    model = Function(lambda model, x: torch.cat([model.token.expand(x.shape[0], -1), x], 1))
    model.token = token
    assert 1 <= taut.bound_lipschitz(model, input_shape=(4,)).value <= 1 + 1e-9


def large_parameter() -> nn.Module:
    layer = taut.nn.AOLLinear(4, 4)
    layer.weight.data.mul_(50)
    return layer


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, x: nn.functional.linear(model.layer(x), model.layer.weight.t()),
        lambda model, x: torch.func.functional_call(
            model.layer, {"weight": model.layer.weight.t()}, (x,)
        ),
    ],
)
def test_parameters_of_constrained_layers_are_not_the_weights_they_multiply_by(forward):
    with pytest.raises(NoRuleError, match=r"uses `layer.weight`, which is not what `layer` multi"):
        taut.bound_lipschitz(Function(forward, large_parameter()), input_shape=(4,))


def test_weights_that_two_operations_share_are_followed():
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4, bias=False))
    tied = Function(lambda model, x: model.layer(x) @ model.layer.weight * 2, layer)
    assert 2 * (1 - 1e-6) <= taut.bound_lipschitz(tied, input_shape=(4,)).value <= 2 * (1 + 1e-6)


def steep_for_its_own_layers(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * (1000 if isinstance(model.layer, taut.nn.AOLLinear) else 1)


def steep_far_away(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    exporting = torch.compiler.is_exporting()
    return x * (1000 if not exporting and bool((x.abs() > 50).any()) else 1)


def steep_for_gradients(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * (1000 if x.requires_grad else 1)


@pytest.mark.parametrize("forward", [steep_for_its_own_layers, steep_far_away, steep_for_gradients])
def test_another_function_than_the_captured_one_is_refused(forward):
    with pytest.raises(NoRuleError, match="another result than the forward"):
        taut.bound_lipschitz(Function(forward, large_parameter()), input_shape=(4,))


def test_state_inside_of_attributes_is_refused():
    def steep_later(model, x):
        model.seen.calls += 1
        return x * (1000 if model.seen.calls > 30 else 1)

    with pytest.raises(NoRuleError, match="writes the attribute `seen`"):
        taut.bound_lipschitz(Function(steep_later), input_shape=(4,))


class SteepLater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return weight * (1000 if self.calls > 10 else 1)


def test_weights_that_count_their_readings_are_refused():
    layer = nn.Linear(3, 3)
    parametrize.register_parametrization(layer, "weight", SteepLater(), unsafe=True)
    with pytest.raises(NoRuleError, match="changes from one reading to the next"):
        taut.bound_lipschitz(nn.Sequential(layer))


def test_only_a_compiler_replaces_what_is_called():
    layer: Any = nn.Linear(3, 3)
    layer.compile(backend="eager")
    assert taut.bound_lipschitz(nn.Sequential(layer)).value > 0
    layer._compiled_call_impl = lambda x: 1000 * x
    with pytest.raises(NoRuleError, match="_compiled_call_impl of `0`"):
        taut.bound_lipschitz(nn.Sequential(layer))


def test_a_bound_does_not_hold_for_another_registered_layer():
    class Half(nn.Module):
        factor = 0.5

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * x

    class Large(Half):
        factor = 50.0

    for kind in (Half, Large):
        taut.rules.register(
            kind,
            proof="factor",
            constants=lambda call: call.x.constants.scaled(call.module.factor),
        )
    dense = nn.Linear(3, 3)
    bound = taut.bound_lipschitz(nn.Sequential(dense, Half()))
    assert bound.holds_for(nn.Sequential(dense, Half()))
    assert not bound.holds_for(nn.Sequential(dense, Large()))


def test_exponentials_without_a_largest_slope_are_refused():
    model = Function(lambda model, x: torch.ops.aten.elu.default(x, 1.0, 1.0, -1.0))
    with pytest.raises(NoRuleError, match="no proven slope"):
        taut.bound_lipschitz(model, input_shape=(4,))
