r"""Tolerances: distances in units that each entry of the input has of its own.

With tolerances $t_i > 0$ the distance of two inputs is $\|(x' - x)/t\|_p$. In L-inf a radius above 1
says that nothing within *all* tolerances together changes the prediction; in L2 the ball is an
ellipsoid. Entries with tolerance 0 do not change at all.

A weighted norm is a rescaled input: $f$ has in it the constant that $g(z) = f(t z)$ has in
$\|\cdot\|_p$. So $g$ is certified at $z = x / t$, with $t$ multiplied into the first dense layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from taut.audit import prepare
from taut.certificates.certification_result import Certificates
from taut.certificates.radii import radii_after_rounding
from taut.errors import ArgumentError, NoRuleError
from taut.norms import Norm

Tolerance = float | Sequence[float] | Tensor
_SUBJECT = "certify"
# Relative weight of an entry that does not change: as nothing beside the others.
_NEGLIGIBLE = 2.0**-30
_PASSING = (nn.Identity, nn.Dropout, nn.Flatten)


@dataclass(frozen=True, eq=False)
class ScaledProblem:
    """A network on inputs divided by their tolerances."""

    model: nn.Module  # $g$, float64
    x: Tensor  # the divided inputs `(batch, ...)`, float64
    changing: Tensor  # which entries may change, in the shape of one input
    unit: float  # relative error of each product of $g$ and each entry of `x`

    def settle(self, certificates: Certificates, norm: Norm) -> Certificates:
        """The certificates of $g$ as those of $f$ in units of the tolerances, roundings included."""
        lengths = norm.vector((self.x * self.changing).flatten(1))
        radius = radii_after_rounding(
            certificates.radius, lengths.to(certificates.radius.device), self.unit
        )
        fixed = int((~self.changing).sum())
        statements = ["distances are in units of the tolerances, entry by entry"]
        if fixed:
            statements.append(f"the {fixed} entries with tolerance 0 do not change")
        scaled = certificates.hypotheses
        hypotheses = replace(scaled, statements=(*scaled.statements, *statements))
        return replace(certificates, radius=radius, hypotheses=hypotheses)


def scale_problem(model: nn.Module, x: Tensor, tolerance: Tolerance) -> ScaledProblem:
    """$g(z) = f(t z)$ and $z = x / t$; see `scale_network`."""
    shape = tuple(x.shape[1:])
    twin, steps, changing, unit = _scale(model, shape, tolerance)
    device = next(twin.parameters()).device
    z = x.detach().to(device, torch.float64) / steps.to(device)
    return ScaledProblem(twin, z, changing.to(device), unit)


def scale_network(
    model: nn.Module, input_shape: Sequence[int], tolerance: Tolerance
) -> tuple[nn.Module, float]:
    r"""$g(z) = f(t z)$ for tolerances $t$, one for all entries or one for each, in float64.

    The first dense layer $W$ of a sequence is replaced by $W t$; behind another first layer the
    constant of $g$ contains the largest tolerance. Entries that do not change get a power of two in
    place of their tolerance, which rounds nothing, and so small that they do not matter: a smaller
    set of changes than those that are proven.

    Returns:
        $g$, and a bound of the relative error of its constants.

    Raises:
        ArgumentError: a tolerance is negative or infinite, all are 0, or there is not one for each.
    """
    twin, _, _, unit = _scale(model, tuple(input_shape), tolerance)
    return twin, unit


@torch.no_grad()
def _scale(
    model: nn.Module, shape: tuple[int, ...], tolerance: Tolerance
) -> tuple[nn.Module, Tensor, Tensor, float]:
    """$g$; what inputs are divided by; which may change; and the relative error of each product."""
    given = torch.as_tensor(tolerance, dtype=torch.float64, device="cpu")
    usual = given.dim() == 0 or given.shape == shape
    sizes = given[given != 0]
    # Quotients and products of others, a NaN among them, leave the range of floats.
    if not usual or not len(sizes) or not ((sizes >= 1e-150) & (sizes <= 1e150)).all():
        rule = (
            "must be from 1e-150 to 1e150, or 0 for what does not change, one for all or of "
            f"shape {shape}"
        )
        remedy = "Values that change freely have no radius: certify each of them."
        raise ArgumentError(_SUBJECT, "tolerance", rule, f"tolerance={tolerance!r}", remedy)
    given = given.expand(shape)
    twin = prepare(model, _SUBJECT).model.double()
    home = next(twin.parameters(), given).device
    device = torch.device("cpu") if home.type == "mps" else home
    layers = list(twin) if type(twin) is nn.Sequential else [twin]
    first_index = next((i for i, layer in enumerate(layers) if not isinstance(layer, _PASSING)), 0)
    first = layers[first_index]
    dense = type(first) is nn.Linear and first.in_features == given.numel()
    if not dense and len(shape) != 1:
        rule = "needs a dense layer first, or rows of numbers as inputs"
        got = f"inputs of shape {shape}"
        raise NoRuleError(_SUBJECT, "tolerance", rule, got, "Put nn.Flatten in front.")
    if not dense:
        first = nn.Linear(*shape, *shape, bias=False)
        layers = [first, *layers]
    assert isinstance(first, nn.Linear)
    weight = first.weight.cpu() if dense else torch.eye(*shape, dtype=torch.float64)
    steps = _with_small_steps(given.flatten(), weight)
    product = weight * steps
    if bool((product[weight != 0].abs() < torch.finfo(torch.float64).tiny).any()):
        rule = "must not be so small that products with the weights of the first layer underflow"
        raise ArgumentError(_SUBJECT, "tolerance", rule, f"tolerance={tolerance!r}")
    first.weight = nn.Parameter(product, requires_grad=False)
    scaled = nn.Sequential(*layers).to(device, torch.float64).eval()
    # Entry by entry products and quotients are rounded by 2^-53; norms of |W| are at most
    # rows * columns times those of W, for every pair of norms.
    return scaled, steps.view(shape), given > 0, 2.0**-50 * weight.numel()


def _with_small_steps(tolerance: Tensor, weight: Tensor) -> Tensor:
    """The tolerances, with negligible powers of two in place of zeros."""
    columns = weight.abs().amax(0)
    largest = float((columns * tolerance).max()) or 1.0
    wanted = _NEGLIGIBLE * largest / torch.where(columns > 0, columns, largest)
    powers = [2.0 ** math.floor(math.log2(value)) for value in wanted.tolist()]
    small = torch.tensor(powers, dtype=torch.float64)
    return torch.where(tolerance > 0, tolerance, small)
