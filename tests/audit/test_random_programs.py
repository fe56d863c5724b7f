"""Random forwards against dense Jacobians: no bound is below the truth, no box too small.

`campaign(count, seed)` runs as many programs as wished.
"""

import copy
import math
import re
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

import taut
from random_programs import Program, Step, make, slice_added, slice_rectified
from taut.audit import audit_program, find_program, prepare
from taut.audit.lipschitz_interpreter import ConstantsInterpreter
from taut.certificates import bound_outputs
from taut.errors import NoRuleError
from taut.norms import L1, L2, LINF, Norm

NORMS: dict[Norm, float] = {L1: 1, L2: 2, LINF: np.inf}

# Torch warns of kernels of an even size, which are among the programs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Using padding='same'")]


def jacobians(model: nn.Module, shape: tuple[int, ...], seed: int) -> list[np.ndarray]:
    generator = torch.Generator().manual_seed(seed)
    found = []
    for scale in (0.01, 0.3, 1.0, 5.0):
        x = scale * torch.randn(1, *shape, dtype=torch.float64, generator=generator)
        size = model(x.clone()).numel()
        # One copy of the point for each output, so that one pass backward gives every row.
        copies = x.repeat(size, *(1,) * len(shape)).requires_grad_()
        y = model(copies * 1).reshape(size, size)
        rows: Any = (None,)
        if y.requires_grad:
            rows = torch.autograd.grad(y.diagonal().sum(), copies, allow_unused=True)
        found.append(np.zeros((size, x.numel())) if rows[0] is None else rows[0].flatten(1).numpy())
    return found


def reason(error: NoRuleError) -> str:
    return re.sub(r"`[^`]*`|\d+", "_", str(error))[:160]


def check(seed: int) -> str:
    """Everything that can be asked of one program; says what happened, raises where it broke."""
    model, shape, computed = make(seed)
    try:
        program = find_program(prepare(model, "test"), shape, "test")
        bounds = {norm: audit_program(program, norm).output.constants for norm in NORMS}
    except NoRuleError as error:
        if computed:
            return "refused: constants computed in the forward"
        return "refused: " + reason(error)
    assert not computed, f"seed {seed}: a computed constant was accepted"
    check_bounds(model, shape, seed, {n: bounds[n][n] for n in NORMS})
    if seed % 5 == 0:
        check_boxes(model, shape, seed)
    if seed % 5 == 1:
        check_certificates(model, shape, seed)
    return "held"


def check_bounds(
    model: nn.Module, shape: tuple[int, ...], seed: int, bounds: dict[Norm, float]
) -> None:
    truth = jacobians(model, shape, seed)
    for norm, order in NORMS.items():
        bound, steepest = bounds[norm], max(np.linalg.norm(j, order) for j in truth)
        assert steepest <= bound * (1 + 1e-9) + 1e-12, f"seed {seed}: {norm} {steepest} > {bound}"


def check_boxes(model: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    lower, upper = bound_outputs(model, centre - 0.2, centre + 0.2)
    for k in range(12):
        share = 2 * torch.rand(centre.shape, dtype=torch.float64, generator=generator) - 1
        point = centre + 0.2 * (share.sign() if k % 2 else share)
        with torch.no_grad():
            y = model(point)
        # The sampled output itself is rounded.
        slack = 1e-9 * (1 + y.abs().amax())
        inside = (lower - slack <= y) & (y <= upper + slack)
        assert inside.all(), f"seed {seed}: an output left its box"


class Rows(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).reshape(x.shape[0], -1)


def check_certificates(model: nn.Module, shape: tuple[int, ...], seed: int) -> None:
    norm = (L2, LINF)[seed // 5 % 2]
    rows = Rows(model)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, *shape, dtype=torch.float64, generator=generator)
    found = taut.certify(rows, x, norm)
    sure = found.radius > 0
    radius = found.radius.clamp(max=1e6).view(-1, *(1,) * len(shape)) * 0.9999999
    step = torch.zeros_like(x)
    for k in range(6):
        z = (x + step).requires_grad_()
        logits = rows(z)
        if logits.shape[1] == 1:
            lead = torch.where(found.prediction == 1, logits[:, 0], -logits[:, 0])
        else:
            others = logits.scatter(1, found.prediction[:, None], -torch.inf)
            lead = logits.gather(1, found.prediction[:, None])[:, 0] - others.amax(1)
        tolerance = 1e-12 * (1 + logits.detach().abs().amax(1))
        assert (lead > -tolerance)[sure].all(), f"seed {seed}: a certificate broke in {norm}"
        if k == 5 or not lead.requires_grad:
            break
        (gradient,) = torch.autograd.grad(lead.sum(), z)
        if norm == LINF:
            step = (step - gradient.sign() * radius).clamp(-radius, radius)
        else:
            length = gradient.flatten(1).norm(dim=1).clamp(min=1e-300).view(radius.shape)
            step = step - gradient / length * radius
            size = step.flatten(1).norm(dim=1).clamp(min=1e-300).view(radius.shape)
            step = step * (radius / size).clamp(max=1)


class Bundle(nn.Module):
    """Several programs on parts of one input, side by side: capturing them costs once."""

    def __init__(self, programs: list[Program], shapes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.programs, self.shapes = nn.ModuleList(programs), shapes
        self.sizes = [math.prod(shape) for shape in shapes]

    def forward(self, x: Tensor) -> Tensor:
        parts = x.split(self.sizes, 1)
        triples = zip(self.programs, parts, self.shapes, strict=True)
        return torch.cat([p(x.reshape(-1, *s)).flatten(1) for p, x, s in triples], 1)


class Tolerant(ConstantsInterpreter):
    """Goes on where something is refused, with the refusal in place of the tensor."""

    def run_node(self, n: fx.Node) -> Any:
        held = [self.env.get(source) for source in n.all_input_nodes]
        refused = [part for part in held if isinstance(part, NoRuleError)]
        if n.op == "output" or (n.target is torch.ops.aten.cat.default and len(n.users) == 1):
            (user,) = n.users or (None,)
            if user is not None and user.op == "output":
                self.found = held
                return next(part for part in held if not isinstance(part, NoRuleError))
        if refused:
            return refused[0]
        try:
            return super().run_node(n)
        except NoRuleError as error:
            return error


def check_bundle(seeds: list[int]) -> dict[int, str]:
    """The bounds of several programs, captured as one; by halves where that is refused."""
    try:
        return check_captured(seeds)
    except NoRuleError:
        if len(seeds) == 1:
            return {seeds[0]: check(seeds[0])}
        half = len(seeds) // 2
        return check_bundle(seeds[:half]) | check_bundle(seeds[half:])


def check_captured(seeds: list[int]) -> dict[int, str]:
    made = [make(seed) for seed in seeds]
    bundle = Bundle([m for m, _, _ in made], [s for _, s, _ in made]).eval()
    program = find_program(prepare(bundle, "test"), (sum(bundle.sizes),), "test")
    bounds: dict[Norm, list[Any]] = {}
    for norm in NORMS:
        interpreter = Tolerant(program, "test")
        interpreter.audit(norm)
        bounds[norm] = interpreter.found
    outcomes: dict[int, str] = {}
    for place, (seed, (model, shape, _)) in enumerate(zip(seeds, made, strict=True)):
        values = {norm: bounds[norm][place] for norm in NORMS}
        refused = [v for v in values.values() if isinstance(v, NoRuleError)]
        if refused:
            outcomes[seed] = "refused: " + reason(refused[0])
            continue
        check_bounds(model, shape, seed, {n: v.constants[n] for n, v in values.items()})
        outcomes[seed] = "held"
    return outcomes


def campaign(count: int, seed: int, seconds: float = math.inf, size: int = 16) -> dict[int, str]:
    """Runs programs `seed`, `seed + 1`, ... and says what happened to each; goes on behind a break.

    Bundles of `size` programs are captured at once; one program of each is checked on its own,
    with boxes and certificates, and so are those with computed constants and those of a bundle that
    cannot be captured.
    """
    outcomes: dict[int, str] = {}
    start = time.monotonic()
    for first in range(seed, seed + count, size):
        if time.monotonic() - start > seconds:
            break
        seeds = range(first, min(first + size, seed + count))
        alone = [s for s in seeds if make(s)[2] or s == first]
        together = [s for s in seeds if s not in alone]
        try:
            outcomes |= check_bundle(together)
        except Exception:
            alone += together
        for index in alone:
            try:
                outcomes[index] = check(index)
            except Exception as error:
                outcomes[index] = f"BROKEN {index}: {type(error).__name__}: {str(error)[:200]}"
    return outcomes


@pytest.mark.parametrize("seed", range(0, 4))
def test_random_programs_hold(seed):
    check(seed)


# Adaptive max pooling, alone and before further operations: it returns places beside the maxima.
@pytest.mark.parametrize("seed", [20010, 20014, 20020, 20035, 20075, 20084, 20080, 20152, 20154])
def test_programs_with_several_results_are_followed(seed):
    assert check(seed) == "held"


def test_certificates_of_a_batch_of_one_that_is_squeezed():
    model = Forward(lambda m, x: (x @ m.large).squeeze()).float().eval()
    x = torch.randn(1, 4, generator=torch.Generator().manual_seed(0))
    assert taut.certify(model, x, arithmetic="float32").radius.shape == (1,)


def test_most_random_programs_are_followed():
    """Refusals are the exception, so that the test above tests something."""
    computed = [seed for seed in range(200) if make(seed)[2]]
    assert 2 <= len(computed) <= 40
    outcomes = campaign(40, 1000, size=20)
    assert list(outcomes.values()).count("held") >= 24, outcomes
    assert not [text for text in outcomes.values() if text.startswith("BROKEN")], outcomes


FORWARDS: dict[str, tuple[tuple[int, ...], Step]] = {
    # Two temporary views must not share a proof.
    "transposed weights": ((4,), lambda m, x: F.linear(F.linear(x, m.small.t()), m.large.t())),
    "negated kernels": (
        (1, 4, 4),
        lambda m, x: F.conv2d(F.conv2d(x, -m.small[None, None]), -m.large[None, None, :1, :1]),
    ),
    "printed alike": (
        (4,),
        lambda m, x: torch.einsum("bi,ij->bj", torch.einsum("bi,ij->bj", x, m.tiny), m.tinier),
    ),
    "einsum of mixed signs": ((4,), lambda m, x: torch.einsum("bi,oi->bo", x, m.large)),
    "difference that copies": ((1,), lambda m, x: torch.rsub(x, m.large[0])),
    "stored token": ((4,), lambda m, x: torch.cat([m.large[0].expand(x.shape[0], -1), x], 1)),
    "zeros for the batch": ((4,), lambda m, x: torch.cat([x, x.new_zeros(x.shape[0], 2)], dim=-1)),
    "mask": ((4,), lambda m, x: x * m.mask),
    "product with a vector": ((4,), lambda m, x: (x @ m.large[0]).unsqueeze(1)),
    "slice in place": ((4,), slice_added),
    "rectified slice": ((4,), slice_rectified),
    "reshape behind a split": ((4,), lambda m, x: x.split(2, 1)[1].reshape(-1, 2, 1).flatten(1)),
    "unevenly padded": (
        (1, 4, 4),
        lambda m, x: F.conv2d(F.pad(x, (1, 0, 2, 1), mode="reflect"), m.large[None, None]),
    ),
    "factor in front": ((4,), lambda m, x: -0.3 * x),
    "squeezed row": ((4,), lambda m, x: (x @ m.large)[:, None].squeeze()),
    "squeezed number": ((4,), lambda m, x: (x @ m.large[:, :1]).squeeze()),
    "squeezed in vain": ((4,), lambda m, x: (x @ m.large).squeeze()),
}
# Operations on vectors of 4, each checked in all three norms, on boxes and by attacks.
OPERATIONS: dict[str, Step] = {
    "stored places": lambda m, x: x[:, m.places],
    "listed places": lambda m, x: x[:, [3, -1, 0]],
    "places of the last dimension": lambda m, x: x.view(-1, 2, 2)[..., m.bits].flatten(1),
    "pairs of places": lambda m, x: x.view(-1, 2, 2)[:, m.bits, [1, 0, 1]],
    "index_select": lambda m, x: x.index_select(1, m.places),
    "where": lambda m, x: torch.where(m.mask, x, 0.1),
    "where of two": lambda m, x: torch.where(m.mask, 2 * x, x.flip(1)),
    "where that copies": lambda m, x: torch.where(m.mask, x[:, :1], -0.5),
    "masked_fill": lambda m, x: x.masked_fill(m.mask, 0.1),
    "addmm": lambda m, x: torch.addmm(m.small[0], x, m.large),
    "softsign": lambda m, x: F.softsign(3 * x),
    "softshrink": lambda m, x: F.softshrink(x, lambd=0.3),
    "tanhshrink": lambda m, x: F.tanhshrink(2 * x),
    "cumsum": lambda m, x: x.cumsum(-1),
    "cumsum of columns": lambda m, x: x.view(-1, 2, 2).cumsum(1).flatten(1),
}


class Forward(nn.Module):
    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        generator = torch.Generator().manual_seed(0)
        values = torch.randn(4, 4, generator=generator, dtype=torch.float64)
        for name, factor in (("small", 0.01), ("large", 100.0), ("tiny", 1e-6), ("tinier", 2e-6)):
            self.register_buffer(name, values * factor)
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("places", torch.tensor([2, 0, 0, 1, 0]))
        self.register_buffer("bits", torch.tensor([0, 1, 1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


@pytest.mark.parametrize("name", FORWARDS)
def test_ordinary_forwards_hold(name):
    shape, step = FORWARDS[name]
    model = Forward(step).eval()
    program = find_program(prepare(model, "test"), shape, "test")
    bounds = {n: audit_program(program, n).output.constants[n] for n in NORMS}
    check_bounds(model, shape, 0, bounds)
    if "einsum" in name or "slice" in name:
        check_boxes(model, shape, 0)
    if "stored" in name or "vector" in name or "mask" in name:
        check_certificates(model, shape, 1)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_hold_in_every_respect(name):
    model = Forward(OPERATIONS[name]).eval()
    program = find_program(prepare(model, "test"), (4,), "test")
    check_bounds(model, (4,), 0, {n: audit_program(program, n).output.constants[n] for n in NORMS})
    check_boxes(model, (4,), 0)
    check_certificates(model, (4,), 1)
    # Boxes of one point: what float32 rounds stays inside, and so does the truth.
    single = Forward(OPERATIONS[name]).float().eval()
    x = 3 * torch.randn(64, 4, generator=torch.Generator().manual_seed(2))
    lower, upper = bound_outputs(single, x, x, arithmetic="float32")
    for y in (single(x).double(), copy.deepcopy(single).double()(x.double())):
        assert ((lower <= y) & (y <= upper)).all()
    assert (upper - lower).max() <= 1e-3 * (1 + upper.abs().max())


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 501])
def test_the_norm_of_a_running_sum_is_the_largest_singular_value(n):
    bound = taut.bound_lipschitz(Forward(lambda m, x: x.cumsum(1)), input_shape=(n,)).value
    assert 0 <= bound - np.linalg.norm(np.tri(n), 2) <= 1e-11 * n


@pytest.mark.parametrize(
    "step",
    [
        lambda m, x: torch.where(x > 0, x, -x),
        lambda m, x: x.masked_fill(m.mask, -math.inf),
        lambda m, x: x[:, m.mask],
        lambda m, x: torch.addmm(m.small[0], x, m.large, alpha=2),
        lambda m, x: x.cumsum(0),
        lambda m, x: x.view(-1, 1, 4).squeeze() @ m.large,
    ],
    ids=["choice by the input", "infinite fill", "mask as index", "alpha", "batch", "squeeze"],
)
def test_what_has_no_proof_is_refused(step):
    with pytest.raises(NoRuleError):
        taut.bound_lipschitz(Forward(step), input_shape=(4,))


def test_casts_to_narrower_types_are_refused_wherever_they_hide():
    model = Forward(lambda m, x: F.softmax(x, 1, dtype=torch.float16))
    with pytest.raises(NoRuleError, match="casts"):
        find_program(prepare(model, "test"), (4,), "test")


def test_uneven_copies_are_refused():
    model = Forward(lambda m, x: F.interpolate(x, scale_factor=41))
    program = find_program(prepare(model, "test"), (1, 3), "test")
    with pytest.raises(NoRuleError, match="unevenly"):
        audit_program(program, L2)
