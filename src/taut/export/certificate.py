r"""`describe_certificate`: what a runtime without taut needs to turn margins into certified radii.

For classes $t$ and $i$, $L_{ti}$ is a Lipschitz constant of the margin $f_t - f_i$ with respect to the
chosen input norm. If tolerances are given, each input is first divided by its tolerance. A prediction
$t$ with margins $m_i = f_t(x) - f_i(x)$ then holds at every $x'$ with

$$\|x' - x\| < \min_{i \ne t} m_i / L_{ti},$$

for $f_t - f_i$ is at least $m_i - L_{ti} \|x' - x\|$ there. If the network ends in a linear layer with
weight rows $w_i$, and its features are $K_q$-Lipschitz in norm $q$, then
$L_{ti} = \min_q K_q \|w_t - w_i\|_{q^*}$. Otherwise $L_{ti} = \min_q 2^{1 - 1/q} K_q$, where the outputs
are $K_q$-Lipschitz in norm $q$.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.certificates import scale_network
from taut.errors import ArgumentError, NoRuleError
from taut.export.folding import fold
from taut.nn import Scale
from taut.norms import L1, L2, LINF, NormLike, as_norm
from taut.rules import Constants

_OUTPUTS = {L1: 1.0, L2: math.sqrt(2), LINF: 2.0}


def flat_layers(model: nn.Module) -> list[nn.Module]:
    """The layers of nested sequences in the order in which they run; another module by itself."""
    if type(model) is not nn.Sequential:
        return [model]
    return [layer for part in model for layer in flat_layers(part)]


@torch.no_grad()
def margin_lipschitz(model: nn.Module, norm: NormLike, input_shape: Sequence[int]) -> Tensor:
    r"""Proven Lipschitz constants $L_{ti}$ of the margins $f_t - f_i$, `(classes, classes)`, float64.

    For a network with one output (the prediction is its sign), the result is its Lipschitz constant,
    with shape `(1, 1)`.

    Args:
        model: any network that `taut.bound_lipschitz` follows; not changed.
        norm: norm of the inputs.
        input_shape: shape of one input.

    Example:
        >>> net = torch.nn.Linear(2, 2, bias=False)
        >>> _ = net.weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> print(f"{margin_lipschitz(net, 'l2', (2,))[0, 1]:.4f}")
        5.0000
    """
    plain, p = fold(model).double(), as_norm(norm)
    layers = flat_layers(plain)
    last = max((i for i, m in enumerate(layers) if type(m) is nn.Linear), default=-1)
    tail = layers[last + 1 :]
    if last < 0 or not all(isinstance(m, Scale) for m in tail):
        shape = plain(torch.zeros(1, *input_shape, dtype=torch.float64)).shape[1:]
        if len(shape) != 1:
            rule = "must return one row of outputs per sample"
            raise ArgumentError("margin_lipschitz", "model", rule, str(shape))
        bounds = [_constant(plain, p, input_shape, q) * f for q, f in _OUTPUTS.items()]
        constant = bounds[0] if shape == (1,) else min(bounds) * (1 + 2.0**-48)
        return torch.full((shape[0], shape[0]), constant, dtype=torch.float64)
    head = layers[last]
    assert isinstance(head, nn.Linear)
    weight = head.weight.cpu()
    # One output is compared with zero.
    weight_differences = weight[:, None] - weight if len(weight) > 1 else weight[:, None]
    features = nn.Sequential(*layers[:last])
    factor = abs(math.prod(m.factor for m in tail if isinstance(m, Scale)))
    # What float64 loses in a difference, a norm of that many numbers and a few products.
    slack = 1 + (weight.shape[1] + 32) * 2.0**-52
    routes = [
        q.dual.vector(weight_differences)
        * (_constant(features, p, input_shape, q) * factor * slack)
        for q in (L1, L2, LINF)
    ]
    return torch.stack(routes).nan_to_num(nan=math.inf).amin(0)


def _constant(model: nn.Module, p: Any, shape: Sequence[int], q: Any) -> float:
    if not len(list(model.children())):
        return Constants.of_input(p, math.prod(shape))[q]
    try:
        return bound_lipschitz(model, p, tuple(shape), q).value
    except NoRuleError:
        return math.inf


def describe_certificate(
    model: nn.Module,
    norm: NormLike,
    input_shape: Sequence[int],
    tolerance: Sequence[float] | None = None,
) -> dict[str, Any]:
    """The certificate of a network as plain lists and numbers, for the metadata of a file.

    Args:
        model: the network as the file has it.
        norm: norm of the radii.
        input_shape: shape of one input.
        tolerance: unit of each entry of an input, 0 for those that do not change.

    Returns:
        `norm`; `tolerance`; `rates`, the constants $L_{ti}$; and `statement`, a human-readable sentence.
    """
    shape, units = tuple(input_shape), "the inputs"
    if tolerance is None:
        constants = margin_lipschitz(model, norm, shape)
    else:
        units = "the tolerances; inputs with tolerance 0 do not change"
        scaled, error = scale_network(model, shape, tolerance)
        constants = margin_lipschitz(scaled, norm, shape) * (1 + 2 * error)
    return {
        "norm": as_norm(norm).name,
        "tolerance": None if tolerance is None else list(tolerance),
        "rates": constants.tolist(),
        "statement": (
            "A prediction t holds for every input at a distance below the smallest of (output[t] - "
            "output[i]) / rates[t][i], i other than t, in exact arithmetic. Distances are in the "
            f"norm {as_norm(norm).name}, in units of {units}."
        ),
    }
