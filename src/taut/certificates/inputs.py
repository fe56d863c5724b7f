"""`certify`: inputs to proven radii."""

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from taut.audit import Audit, Constants, audit
from taut.bounds import Bound, LayerTable
from taut.certificates.execution import Execution
from taut.certificates.frozen import Affine, freeze
from taut.certificates.radii import PairRadii, differences, sign_radii, vector_radii
from taut.certificates.result import Certificates
from taut.certificates.run import Run
from taut.errors import ArgumentError, DtypeError, check_choice, check_count
from taut.norms import NormLike, as_norm

__all__ = ["certify"]

_SUBJECT = "certify"
_ARITHMETICS = {"real": None, "float64": torch.float64, "float32": torch.float32}


@torch.no_grad()
def certify(
    model: nn.Module,
    x: Tensor,
    norm: NormLike = "l2",
    labels: Tensor | None = None,
    arithmetic: str = "real",
    batch_size: int = 1024,
) -> Certificates:
    r"""Radii within which no change of the input changes the prediction: a theorem for each input.

    $$\|x' - x\|_p < r \;\Rightarrow\; \arg\max_i f_i(x') = \arg\max_i f_i(x)$$

    for the network as evaluation runs it on its stored weights, in one of three arithmetics:

    - `"real"`: $f$ computed exactly. It is evaluated in float64, and the proven error of that is
      subtracted, so nothing is taken on trust.
    - `"float64"`: $f$ executed in float64 on the same weights (that is, of the folded network,
      converted), at $x$ and at every $x'$.
    - `"float32"`: the model as it stands, executed in float32. Rounding at $x'$ costs some radius:
      0.06 in L2 for three orthonormal layers of 1024 on inputs of length 16.

    Executions may sum in any order and may fuse multiplications with additions; reduced-precision
    products (TF32, bfloat16) break the promise.

    Args:
        model: maps `(batch, ...)` to `(batch, classes)`, or to one output a sample, whose sign is
            the prediction. Not changed.
        x: `(batch, ...)`, floating-point.
        norm: "l1", "l2" or "linf".
        labels: `(batch,)`, the true classes, 0 and 1 for one output.
        arithmetic: "real", "float64" or "float32".
        batch_size: inputs at a time; bounds the memory.

    Raises:
        NoRuleError: a step has no proven constant or no proven rounding error; the text names it.

    Example:
        >>> import taut
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
        >>> found = certify(model, torch.tensor([[1.0, 0.5]]))
        >>> found.prediction.item(), round(found.radius.item(), 9)
        (0, 1.0)
    """
    p = as_norm(norm, _SUBJECT)
    check_choice(_SUBJECT, "arithmetic", arithmetic, tuple(_ARITHMETICS))
    check_count(_SUBJECT, "batch_size", batch_size)
    if not x.dtype.is_floating_point:
        raise DtypeError(
            f"{_SUBJECT}: `x` must be of floating point; got {x.dtype}. Convert it with .float()."
        )
    if x.dim() < 2:
        raise ArgumentError(
            f"{_SUBJECT}: `x` must be a batch (n, ...); got shape {tuple(x.shape)}. "
            "Use x[None] for one input."
        )
    if arithmetic == "float32":
        _check_float32(model, x)
    network = freeze(model)
    found = audit(network, p, tuple(x.shape[1:]))
    held = next(model.parameters(), x)
    device = torch.device("cpu") if held.device.type == "mps" else held.device
    reach = _triple(found.input.constants, device)
    execution = Execution(network.to(device), reach, _ARITHMETICS[arithmetic])
    as_it_stands = _evaluating(model) if arithmetic == "float32" else None
    judge = _Judge(_triple(found.output.constants, device))
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for batch in x.detach().split(batch_size):
        run, limit = execution(batch.to(device, torch.float64))
        output = run.value
        if as_it_stands is not None:
            with torch.autocast(held.device.type, enabled=False):
                output = as_it_stands(batch.to(held.device)).to(device)
        prediction, margin, radius = judge(run, output)
        known = (limit > 0) & _finite(batch.to(device)) & _finite(output) & _finite(run.value)
        parts.append((prediction, margin, torch.where(known, torch.minimum(radius, limit), 0.0)))
    home = device if x.device.type == "mps" else x.device
    prediction, margin, radius = (torch.cat(part).to(home) for part in zip(*parts, strict=True))
    return Certificates(
        prediction=prediction,
        margin=margin,
        radius=radius,
        norm=p,
        arithmetic=arithmetic,
        method=judge.method,
        lipschitz=_bound(found),
        correct=None if labels is None else _compare(prediction, labels),
    )


class _Judge:
    """Predictions, margins and radii of outputs, by the best way that applies."""

    def __init__(self, constants: Tensor) -> None:
        self.constants = constants
        self.pairs = PairRadii()
        self.method = ""

    def __call__(self, run: Run, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the tensor `output` that an execution gave, around the values of `run`."""
        if run.shape in ((), (1,)):
            self.method = "sign"
            prediction = (output.flatten() > 0).long()
            margin, radius = sign_radii(run, self.constants, prediction)
            return prediction, margin, radius
        if len(run.shape) != 1:
            raise ArgumentError(
                f"{_SUBJECT}: `model` must give one row of outputs a sample; got the shape "
                f"{run.shape}. Flatten them, or choose some."
            )
        prediction = output.argmax(1)
        lead = differences(run.value, prediction)
        if run.head is None:
            self.method = "vector map"
            radii = vector_radii(run, self.constants, lead)
        else:
            self.method = "last-layer pairs"
            radii = self.pairs(run.head, prediction, lead)
        return prediction, lead.amin(1), radii.amin(1)


def _check_float32(model: nn.Module, x: Tensor) -> None:
    held = {t.dtype for t in (x, *model.parameters(), *model.buffers()) if t.is_floating_point()}
    if held != {torch.float32}:
        raise DtypeError(
            f"{_SUBJECT}: `arithmetic` 'float32' must be that of the model and of `x`; got "
            f"{', '.join(sorted(map(str, held)))}. Convert both with .float(), or use 'real'."
        )
    if torch.get_float32_matmul_precision() != "highest":
        raise ArgumentError(
            f"{_SUBJECT}: `arithmetic` 'float32' must mean full float32 products; got "
            f"torch.get_float32_matmul_precision() == {torch.get_float32_matmul_precision()!r}. "
            "Set it to 'highest'."
        )


def _evaluating(model: nn.Module) -> nn.Module:
    training = any(module.training for module in model.modules())
    return copy.deepcopy(model).eval() if training else model


def _triple(constants: Constants, device: torch.device) -> Tensor:
    values = [constants.l1, constants.l2, constants.linf]
    return torch.tensor(values, dtype=torch.float64, device=device)


def _finite(x: Tensor) -> Tensor:
    return x.flatten(1).isfinite().all(1) if x.dim() > 1 else x.isfinite()


def _bound(found: Audit) -> Bound:
    rows = (
        replace(row, kind=visit.module.kind) if isinstance(visit.module, Affine) else row
        for row, visit in zip(found.table(found.norm), found.visits, strict=True)
    )
    value = found.output.constants[found.norm]
    return Bound(value, found.norm, method="composition of proven layers", layers=LayerTable(rows))


def _compare(prediction: Tensor, labels: Tensor) -> Tensor:
    labels = torch.as_tensor(labels)
    if labels.shape != prediction.shape or labels.is_floating_point() or labels.is_complex():
        raise ArgumentError(
            f"{_SUBJECT}: `labels` must be one class index for each input; got {labels.dtype} of "
            f"shape {tuple(labels.shape)} for {len(prediction)} inputs."
        )
    return prediction == labels.to(prediction.device)
