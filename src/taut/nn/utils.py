"""Constraints for the layers of torch by parametrization, as in `torch.nn.utils.parametrizations`.

Each function makes a tensor of a module a function of a parameter, such as `taut.nn.OrthonormalLinear`
makes of its own: feasible in every forward. The module stays what it is, and `taut.bound_lipschitz`
proves its constant from the numbers that it multiplies by.
"""

from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.utils import parametrize

from taut.errors import ArgumentError
from taut.nn import ball_layers, conv_aol, conv_orthonormal, conv_spectral
from taut.nn.constrained import ConstrainedLayer
from taut.nn.orthonormal import OrthonormalLinear
from taut.nn.row_rescaling import AOLLinear, UnitNormLinear
from taut.nn.spectral import SpectralLinear
from taut.norms import L2

__all__ = ["aol", "l1", "linf", "orthonormal", "remove", "spectral", "unit_norm"]

_M = TypeVar("_M", bound=nn.Module)
_GEOMETRY = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")


class Constraint(nn.Module):
    """The parametrization: the weight that a constrained layer would make of the parameter.

    The layer is held aside, without parameters, so that it is no part of the state of the module.
    """

    def __init__(self, layer: ConstrainedLayer, start: Tensor | None) -> None:
        super().__init__()
        layer._parameters["weight"] = layer._parameters["bias"] = None
        self._held = (layer,)
        self._start, self._factored = start, start is not None

    def forward(self, weight: Tensor) -> Tensor:
        """A feasible weight made from any finite one."""
        return self._call(weight, "effective_weight")

    def evaluated(self, weight: Tensor) -> Tensor:
        """The weight that evaluation uses."""
        return self._call(weight, "evaluation_weight")

    def _call(self, weight: Tensor, method: str) -> Tensor:
        (layer,) = self._held
        layer.training = self.training
        layer._parameters["weight"] = weight  # type: ignore[assignment]
        try:
            return getattr(layer, method)()
        finally:
            layer._parameters["weight"] = None

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The parameter for a weight that is assigned; factors of a kernel start at random."""
        if not self._factored:
            return weight
        start, self._start = self._start, None
        if start is None:
            rule = "of an orthonormal convolution must be changed through its factors"
            remedy = "Write to module.parametrizations.weight.original, or remove the constraint."
            raise ArgumentError("orthonormal", "weight", rule, "an assignment", remedy)
        return start


def orthonormal(module: _M, name: str = "weight", method: str = "retract") -> _M:
    """Keeps a dense or convolutional weight orthonormal, as `OrthonormalLinear` and `OrthonormalConv2d` do.

    Args:
        module: a `torch.nn.Linear`, a convolution, or any module whose tensor is a matrix.
        name: name of the tensor.
        method: as in `taut.nn.OrthonormalLinear`; only for matrices.

    Returns:
        The module itself. A convolution starts at a random orthonormal kernel, a matrix near its own.

    Example:
        >>> layer = orthonormal(torch.nn.Linear(3, 3))
        >>> 0.99 < taut.bound_lipschitz(layer).value <= 1
        True
        >>> type(remove(layer)).__name__
        'Linear'
    """
    return _constrain("orthonormal", module, name, OrthonormalLinear, method=method)


def spectral(module: _M, name: str = "weight") -> _M:
    """Divides a matrix or a kernel by a proven bound of its norm.

    As `taut.nn.SpectralLinear` and `taut.nn.SpectralConv2d` do. The arguments are those of `orthonormal`.

    Example:
        >>> taut.bound_lipschitz(spectral(torch.nn.Conv2d(2, 4, 3))).value <= 1
        True
    """
    return _constrain("spectral", module, name, SpectralLinear)


def aol(module: _M, name: str = "weight") -> _M:
    """Rescales rows, columns or channels, as `taut.nn.AOLLinear` and `taut.nn.AOLConv2d` do.

    The arguments are those of `orthonormal`.

    Example:
        >>> taut.bound_lipschitz(aol(torch.nn.Linear(3, 2))).value <= 1
        True
    """
    return _constrain("aol", module, name, AOLLinear)


def unit_norm(module: _M, name: str = "weight") -> _M:
    """Divides the rows of a matrix by their lengths, as `taut.nn.UnitNormLinear` does.

    Example:
        >>> taut.bound_lipschitz(unit_norm(torch.nn.Linear(3, 2)), "l2", output_norm="linf").value <= 1
        True
    """
    return _constrain("unit_norm", module, name, UnitNormLinear)


def linf(module: _M, name: str = "weight") -> _M:
    """Keeps rows, or filters, in the l1 ball: norm at most 1 in L-inf, as `taut.nn.LinfLinear` does.

    Example:
        >>> taut.bound_lipschitz(linf(torch.nn.Linear(3, 2)), "linf").value <= 1
        True
    """
    return _constrain("linf", module, name, ball_layers.LinfLinear)


def l1(module: _M, name: str = "weight") -> _M:
    """Keeps columns in the l1 ball: norm at most 1 in L1, as `taut.nn.L1Linear` does.

    Example:
        >>> taut.bound_lipschitz(l1(torch.nn.Linear(3, 2)), "l1").value <= 1
        True
    """
    return _constrain("l1", module, name, ball_layers.L1Linear)


def remove(module: _M, name: str = "weight") -> _M:
    """Removes a constraint of this module and leaves the weight that evaluation uses, as a parameter.

    Unlike `torch.nn.utils.parametrize.remove_parametrizations` it leaves copies of the module alone.
    """
    if not parametrize.is_parametrized(module, name):
        rule = "must be that of a constrained tensor"
        raise ArgumentError("remove", "name", rule, f"name={name!r}")
    held: Any = module.parametrizations
    chain = held[name]
    if len(chain) > 1:
        rule = "must be that of a tensor with one parametrization, or the others would go with it"
        remedy = "Use torch.nn.utils.parametrize.remove_parametrizations."
        raise ArgumentError("remove", "name", rule, f"{len(chain)} of them", remedy)
    made = chain[0]
    value = made.evaluated(chain.original) if isinstance(made, Constraint) else chain()
    fixed = nn.Parameter(value.detach().clone(), chain.original.requires_grad)
    if len(held) > 1:
        parametrize.remove_parametrizations(module, name, leave_parametrized=True)
        delattr(module, name)
    else:
        # The class with the property is shared with copies, so it is left as it is.
        module.__class__ = parametrize.type_before_parametrizations(module)
        del module._modules["parametrizations"]
    module.register_parameter(name, fixed)
    return module


# By the name of the function, the constrained convolutions that keep the same promise.
_CONVOLUTIONS: dict[str, Any] = {
    "orthonormal": (conv_orthonormal, "Orthonormal"),
    "spectral": (conv_spectral, "Spectral"),
    "aol": (conv_aol, "AOL"),
    "linf": (ball_layers, "Linf"),
}


def _constrain(subject: str, module: _M, name: str, dense: Any, **options: Any) -> _M:
    weight = getattr(module, name, None)
    if not isinstance(weight, nn.Parameter) or parametrize.is_parametrized(module, name):
        rule = "must be that of a parameter which is not parametrised yet"
        raise ArgumentError(subject, "name", rule, f"name={name!r} of {type(module).__name__}")
    kind = type(module).__name__
    more: dict[str, Any] = {"bias": False, "device": weight.device, "dtype": weight.dtype}
    start = None
    if kind.startswith("Conv") and name == "weight":
        home, prefix = _CONVOLUTIONS.get(subject, (None, ""))
        layer_type = getattr(home, f"{prefix}{kind}", None)
        if layer_type is None:
            rule = "must have a constrained counterpart"
            raise ArgumentError(subject, "module", rule, kind, "Use orthonormal or spectral.")
        layer = _convolution(layer_type, module, more)
        start = layer.weight.detach().clone()
    elif weight.dim() == 2:
        layer = dense(weight.shape[1], weight.shape[0], **more, **options)
    else:
        got = f"{kind} with {name} of shape {tuple(weight.shape)}"
        raise ArgumentError(subject, "module", "must be a convolution, or hold a matrix", got)
    unlike = start is not None and start.shape != weight.shape
    constraint = Constraint(layer, start if unlike else None)
    # torch checks shapes of what the inverse gives, which factors of a kernel have not.
    parametrize.register_parametrization(module, name, constraint, unsafe=unlike)
    return module


def _convolution(kind: Any, module: Any, more: dict[str, Any]) -> ConstrainedLayer:
    arguments = {name: getattr(module, name) for name in _GEOMETRY}
    if module.transposed:
        arguments["output_padding"] = module.output_padding
    layer = kind(module.in_channels, module.out_channels, **arguments, **more)
    on_circle = module.padding_mode == "circular" and max(module.stride) == 1
    if layer.input_norm == L2 and module.padding_mode != "zeros" and not on_circle:
        rule = (
            "must pad with zeros, or circularly with stride 1: the norm of other paddings depends on "
            "the size of the input, which a layer of torch does not check"
        )
        got = f"padding_mode={module.padding_mode!r}, stride={module.stride}"
        raise ArgumentError("taut.nn.utils", "module", rule, got, f"Use taut.nn.{kind.__name__}.")
    return layer
