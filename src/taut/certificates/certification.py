"""`certify`: inputs to proven radii."""

import math
from typing import get_args

import torch
from torch import Tensor, nn

from taut.audit import audit_program, bound_of, find_program, prepare
from taut.bounds import Bound, Hypotheses
from taut.certificates.certification_result import Certificates
from taut.certificates.float32_execution import float32_executor
from taut.certificates.input_checks import check_batch, check_float32, check_labels
from taut.certificates.input_tolerances import Tolerance, scale_problem
from taut.certificates.interval_propagation import BoxInterpreter
from taut.certificates.interval_propagation_radii import InputRange, interval_radii
from taut.certificates.radii import PairRadii, differences, sign_radii, vector_radii
from taut.certificates.rounded_execution import RoundedExecution, dtype_of, in_double
from taut.certificates.rounded_tensor import RoundedTensor
from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.linalg.rounding import check_arithmetic
from taut.names import Arithmetic, CertificateMethod
from taut.norms import LINF, Norm, NormLike, as_norm
from taut.rules import Constants

_SUBJECT = "certify"


@torch.no_grad()
def certify(
    model: nn.Module,
    x: Tensor,
    norm: NormLike = "l2",
    labels: Tensor | None = None,
    arithmetic: Arithmetic = "real",
    batch_size: int = 1024,
    method: CertificateMethod = "lipschitz",
    input_range: InputRange | None = None,
    tolerance: Tolerance | None = None,
    radius: float | None = None,
) -> Certificates:
    r"""Certified radii: no perturbation smaller than the radius changes the prediction.

    $$\|x' - x\|_p < r \;\Rightarrow\; \arg\max_i f_i(x') = \arg\max_i f_i(x)$$

    for the network in evaluation mode with its stored weights, in one of three arithmetics:

    - `"real"`: $f$ in exact arithmetic. It is evaluated in float64, and a proven bound on the
      rounding error of that evaluation is subtracted from the margin.
    - `"float64"`: $f$ executed in float64 with the same weights (the folded network, converted to
      float64), at $x$ and at every $x'$.
    - `"float32"`: the model executed in float32. Rounding at $x'$ reduces the radius, by 0.06 in L2
      for three orthonormal layers of 1024 units on inputs of length 16.

    Sums may be taken in any order, and multiply-add may be fused. The other assumptions are in
    `print(certificates.hypotheses)`: full-precision products (no TF32), and convolutions by direct
    sums or matrix products, because fast transforms (Winograd, FFT) have other rounding errors.
    `taut.certificates.direct_executor` runs a network under these assumptions; float32 certificates
    of networks with convolutions hold for its predictions.

    In L-inf, `method="interval"` proves radii by interval bound propagation, clipped to `input_range`
    if that is given. For networks trained for it, constrained or not, these radii are far larger
    than those from a Lipschitz constant.

    Args:
        model: maps `(batch, ...)` to `(batch, classes)`, or to one output per sample, whose sign
            is the prediction. It is not modified.
        x: `(batch, ...)`, floating-point.
        norm: "l1", "l2" or "linf".
        labels: `(batch,)`, the true classes, 0 and 1 for one output.
        arithmetic: "real", "float64" or "float32".
        batch_size: number of inputs at a time.
        method: "lipschitz" for margins divided by Lipschitz constants; "interval" for interval bound
            propagation, L-inf only; "best" for the larger of the two radii of each input, to within 2 %.
        input_range: smallest and largest possible value of an entry of an input. `x` must lie in it,
            and the radii then hold for the $x'$ in this range only.
        tolerance: one tolerance for all entries of an input, or one for each; 0 for entries that do not
            change. Distances are then $\|(x' - x)/t\|_p$, so that in L-inf a radius above 1 covers every
            $x'$ within all tolerances together. Real and float64 arithmetic only.
        radius: the only radius of interest. Interval propagation then tries this one instead of
            looking for the largest, which takes about 20 times as long; radii from Lipschitz constants
            are not affected.

    Raises:
        NoRuleError: an operation has no proven constant or rounding error; the message names it.

    Example:
        >>> import taut
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> _ = model.weight.data.copy_(torch.tensor([[3.0, 4.0], [-3.0, -4.0]]))
        >>> found = certify(model, torch.tensor([[1.0, 0.5]]))
        >>> found.prediction.item(), round(found.radius.item(), 9)
        (0, 1.0)
    """
    p = as_norm(norm, _SUBJECT)
    dtype = dtype_of(arithmetic, _SUBJECT)
    check_count(_SUBJECT, "batch_size", batch_size)
    _check_method(method, p, x, input_range)
    if radius is not None:
        check_positive(_SUBJECT, "radius", radius)
    check_arithmetic(_SUBJECT)
    check_batch(_SUBJECT, x)
    if labels is not None:
        labels = check_labels(_SUBJECT, labels, len(x))
    if tolerance is not None:
        if arithmetic == "float32" or input_range is not None:
            rule = "is proven for real and float64 arithmetic, without `input_range`"
            got = f"arithmetic={arithmetic!r}, input_range={input_range!r}"
            raise ArgumentError(_SUBJECT, "tolerance", rule, got)
        scaled = scale_problem(model, x, tolerance)
        certificates = certify(
            scaled.model, scaled.x, p, labels, arithmetic, batch_size, method, radius=radius
        )
        return scaled.settle(certificates, p)
    if arithmetic == "float32":
        check_float32(_SUBJECT, model, x)
    prepared = prepare(model, _SUBJECT)
    stored = find_program(prepared, tuple(x.shape[1:]), _SUBJECT)
    home = next(model.parameters(), x).device
    device = torch.device("cpu") if home.type == "mps" else home
    program = in_double(stored, device)
    audit = audit_program(program, p)
    execution = RoundedExecution(program, p, dtype, _SUBJECT)
    run_in_float32 = float32_executor(prepared, stored) if arithmetic == "float32" else None
    certifier = _Certifier(audit.output.constants)
    boxes = None if method == "lipschitz" else BoxInterpreter(program, _SUBJECT, dtype)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for batch in x.detach().split(batch_size):
        exact = batch.to(device, torch.float64)
        run, limit = execution(exact)
        output = run.value
        if run_in_float32 is not None:
            with torch.autocast(home.type, enabled=False):
                output = run_in_float32(batch.to(home)).to(device).view_as(run.value)
        prediction, margin, found_radius = certifier(run, output)
        finite = _finite(exact) & _finite(output) & _finite(run.value)
        radii = torch.where(finite & (limit > 0), torch.minimum(found_radius, limit), 0.0)
        if boxes is not None:
            start = radii[finite] if method == "best" else torch.zeros_like(radii[finite])
            radii[finite] = interval_radii(
                boxes, exact[finite], prediction[finite], start, input_range, radius
            )
        parts.append((prediction, margin, radii))
    target = device if x.device.type == "mps" else x.device
    prediction, margin, radii = (torch.cat(part).to(target) for part in zip(*parts, strict=True))
    lipschitz = bound_of(audit)
    return Certificates(
        prediction=prediction,
        margin=margin,
        radius=radii,
        norm=p,
        arithmetic=arithmetic,
        method={
            "lipschitz": certifier.method,
            "interval": "interval propagation",
            "best": f"{certifier.method} or interval propagation",
        }[method],
        lipschitz=lipschitz,
        correct=None if labels is None else prediction == labels.to(prediction.device),
        hypotheses=_hypotheses(lipschitz, arithmetic, execution, input_range),
    )


def _check_method(
    method: CertificateMethod, norm: Norm, x: Tensor, input_range: InputRange | None
) -> None:
    check_choice(_SUBJECT, "method", method, get_args(CertificateMethod))
    if method != "lipschitz" and norm != LINF:
        rule = "must be 'lipschitz' for norms other than linf, whose balls are no boxes"
        raise ArgumentError(_SUBJECT, "method", rule, f"method={method!r}, norm={norm.name!r}")
    if input_range is None:
        return
    low, high = input_range
    if not -math.inf < low < high < math.inf or bool(((x < low) | (x > high)).any()):
        rule = "must be two numbers in order, with all of `x` between them"
        remedy = "Leave it out if inputs may take any value."
        raise ArgumentError(_SUBJECT, "input_range", rule, f"input_range={input_range!r}", remedy)


def _hypotheses(
    lipschitz: Bound, arithmetic: str, execution: RoundedExecution, input_range: InputRange | None
) -> Hypotheses:
    network = lipschitz.hypotheses
    statements = [s for s in network.statements if "real arithmetic" not in s]
    if input_range is not None:
        statements.append(
            f"every entry of an input lies between {input_range[0]} and {input_range[1]}"
        )
    if arithmetic == "real":
        statements.append(
            "the prediction is that of the network computed exactly, in real arithmetic"
        )
    else:
        statements.append(
            f"the network is executed in {arithmetic}, rounding to nearest, at the input and at "
            "every other point; sums may be taken in any order"
        )
        statements.extend(f"it uses {assumption}" for assumption in execution.assumptions)
    return Hypotheses(tuple(statements), network.input_shape, network.digest, network.digest_of)


class _Certifier:
    """Predictions, margins and radii of outputs, by the best way that applies."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.pairs = PairRadii()
        self.method = ""

    def __call__(self, run: RoundedTensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Certifies the tensor `output` of an execution, which is around the values of `run`."""
        if run.shape in ((), (1,)):
            self.method = "sign"
            prediction = (output.flatten() > 0).long()
            margin, radius = sign_radii(run, self.constants, prediction)
            return prediction, margin, radius
        if len(run.shape) != 1:
            rule = "must return one row of outputs per sample"
            remedy = "Flatten the outputs, or select some."
            raise ArgumentError(_SUBJECT, "model", rule, f"the shape {run.shape}", remedy)
        prediction = output.argmax(1)
        margins = differences(run.value, prediction)
        if run.last is None:
            self.method = "vector map"
            radii = vector_radii(run, self.constants, margins)
        else:
            self.method = "last-layer pairs"
            radii = self.pairs(run.last, prediction, margins)
        return prediction, margins.amin(1), radii.amin(1)


def _finite(x: Tensor) -> Tensor:
    return x.flatten(1).isfinite().all(1) if x.dim() > 1 else x.isfinite()
