"""Float32 certificates of convolutional networks, attacked by executions in float32.

Error bounds of single operations are held against exact arithmetic. `campaign(count, seed)` attacks
as many certificates as wished.
"""

import copy
import itertools
import math
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import taut
from taut.audit import find_program, prepare
from taut.certificates import bound_outputs, direct_executor
from taut.certificates.rounded_execution import RoundedExecution, in_double
from taut.norms import L2, LINF, Norm

pytestmark = pytest.mark.slow

MODES = ("zeros", "circular", "reflect", "replicate")


def make(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A random convolutional classifier in float32."""
    random = np.random.default_rng(seed)
    pick = lambda *options: options[int(random.integers(len(options)))]  # noqa: E731
    channels, size = pick(1, 2, 4), pick(5, 6)
    shape = (channels, size, size)
    layers: list[nn.Module] = []
    for _ in range(int(random.integers(1, 4))):
        kind = pick("plain", "plain", "grouped", "dilated", "transposed", "residual")
        if kind == "residual":
            body = nn.Conv2d(channels, channels, 3, padding=1, padding_mode=pick(*MODES))
            layers.append(taut.nn.Residual(body, mode=pick("add", "average")))
        else:
            groups = channels if kind == "grouped" else 1
            wider = 2 * channels if channels < 4 else channels
            more: dict[str, Any] = {"padding": 1, "stride": pick(1, 1, 2), "groups": groups}
            if kind == "transposed":
                layers.append(nn.ConvTranspose2d(channels, wider, 3, **more))
            else:
                more["dilation"] = 2 if kind == "dilated" else 1
                more["padding"] = more["dilation"]
                layers.append(nn.Conv2d(channels, wider, 3, padding_mode=pick(*MODES), **more))
            channels = wider
        if random.random() < 0.4:
            layers.append(pick(nn.BatchNorm2d(channels), taut.nn.Centering(channels)))
        even = channels % 2 == 0
        layers.append(
            pick(
                nn.Softplus(beta=pick(0.05, 1, 4), threshold=40), nn.Tanh(), nn.GELU(), nn.ReLU(),
                nn.ELU(pick(1.0, 30.0)), taut.nn.MaxMin(dim=1) if even else taut.nn.Abs(),
                nn.Hardtanh(-0.1, 0.7), nn.LeakyReLU(0.1),
            )
        )  # fmt: skip
        if random.random() < 0.3:
            layers.append(pick(nn.AvgPool2d(2), nn.MaxPool2d(2), taut.nn.L2Pool2d(2)))
    with torch.no_grad():
        body = nn.Sequential(*layers).eval()
        try:
            size = body(torch.zeros(1, *shape)).numel()
        except RuntimeError:
            return make(seed + 10**6)  # a window that does not fit
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, pick(2, 3, 5)))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point():
            scale = 10 ** random.uniform(-3, 3) / math.sqrt(max(1, tensor[0].numel()))
            fresh = torch.from_numpy(random.standard_normal(tensor.shape) * scale)
            offset = 10 ** random.uniform(-1, 3) * (random.random() < 0.3) * name.endswith("bias")
            tensor.data.copy_(fresh.abs() + 1e-3 if "var" in name else fresh + offset)
    return model.eval(), shape


def lead_of(logits: Tensor, prediction: Tensor) -> Tensor:
    others = logits.scatter(1, prediction[:, None], -torch.inf)
    return logits.gather(1, prediction[:, None])[:, 0] - others.amax(1)


def attack(seed: int, norm: Norm, batch: int = 4) -> tuple[int, int]:
    """Attacks certificates of one network; how many were positive, and how many broke."""
    model, shape = make(seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, *shape, generator=generator) * 10 ** torch.randint(
        -1, 2, (batch, 1, 1, 1), generator=generator
    )
    found = taut.certify(model, x, norm, arithmetic="float32")
    run, exact = direct_executor(model, shape), copy.deepcopy(model).double()
    sure = found.radius > 0
    radius = found.radius.clamp(max=1e30).view(-1, 1, 1, 1)
    broken = torch.zeros(batch, dtype=torch.bool)
    step = torch.zeros_like(x, dtype=torch.float64)
    for k in range(9):
        z = (x.double() + step).requires_grad_()
        (gradient,) = torch.autograd.grad(lead_of(exact(z), found.prediction).sum(), z)
        if norm == LINF:
            step = (step - gradient.sign() * radius).clamp(-radius, radius)
        else:
            way = F.normalize(gradient.flatten(1), dim=1, eps=1e-300).view_as(gradient)
            step = step - way * radius * (1 if k < 5 else 0.2)
            length = step.flatten(1).norm(dim=1).clamp(min=1e-300).view(radius.shape)
            step = step * (radius / length).clamp(max=1)
        for share in (0.5, 1 - 1e-3, 1 - 1e-6, 1.0):
            near = (x.double() + step * share).float()
            if k % 2:
                toward = torch.randn(near.shape, generator=generator) * torch.inf
                near = torch.nextafter(near, toward)
            inside = norm.vector((near.double() - x.double()).flatten(1)) < found.radius
            with torch.no_grad():
                changed = run(near).argmax(1) != found.prediction
            broken |= changed & inside & sure
    return int(sure.sum()), int(broken.sum())


def campaign(count: int, seed: int, seconds: float = math.inf) -> dict[str, Any]:
    """Attacks networks until `count` certificates of a positive radius were tried."""
    start, tried, broken, networks, raised = time.monotonic(), 0, [], 0, []
    while tried < count and time.monotonic() - start < seconds:
        norm = (L2, LINF)[seed % 2]
        try:
            positive, fallen = attack(seed, norm)
        except Exception as error:
            raised.append((seed, f"{type(error).__name__}: {str(error)[:200]}"))
        else:
            tried += positive
            networks += 1
            broken += [seed] * bool(fallen)
        seed += 1
    return {"certificates": tried, "networks": networks, "broken": broken, "raised": raised}


def test_no_float32_certificate_of_a_convolutional_network_breaks():
    found = campaign(100, 0)
    assert not found["broken"] and not found["raised"], found
    assert found["certificates"] >= 100


def test_the_attack_has_teeth():
    """Twice the radius of a linear convolutional network is enough to change predictions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(18, 2)).eval()
    x = torch.randn(20, 1, 5, 5)
    found = taut.certify(model, x, "linf", arithmetic="float32")
    z = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(lead_of(model(z), found.prediction).sum(), z)
    far = x - 6 * found.radius.float().view(-1, 1, 1, 1) * gradient.sign()
    assert (direct_executor(model, (1, 5, 5))(far).argmax(1) != found.prediction).all()


# Errors of single operations against exact arithmetic.


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


Exact = Callable[[Tensor], list[Any]]


def entrywise(function: Callable[[Any], Any]) -> Exact:
    return lambda x: [function(mpmath.mpf(v)) for v in x.flatten().tolist()]


def of_matrix(layer: nn.Module, shape: tuple[int, ...]) -> Exact:
    """A linear map whose entries are stored numbers: read off unit vectors without rounding."""
    exact = copy.deepcopy(layer).double()
    size = math.prod(shape)
    with torch.no_grad():
        bias = exact(torch.zeros(1, *shape, dtype=torch.float64)).flatten()
        if getattr(exact, "bias", None) is not None:
            exact.bias.data.zero_()  # type: ignore[union-attr, operator]
        columns = exact(torch.eye(size, dtype=torch.float64).view(size, *shape)).flatten(1)

    def rows(x: Tensor) -> list[Any]:
        point = [Fraction(v) for v in x.flatten().tolist()]
        pairs = zip(columns.T.tolist(), bias.tolist(), strict=True)
        return [
            sum((Fraction(w) * v for w, v in zip(row, point, strict=True) if w), Fraction(b))
            for row, b in pairs
        ]

    return rows


def windows(x: Tensor, k: int) -> list[list[Any]]:
    held = x[0].tolist()
    n = len(held[0])
    return [
        [plane[i + a][j + b] for a, b in itertools.product(range(k), repeat=2)]
        for plane in held
        for i, j in itertools.product(range(0, n - k + 1, k), repeat=2)
    ]


def resized(x: Tensor, m: int) -> list[Any]:
    """Bilinear resizing of `(1, c, n, n)` to `m`, corners not aligned, in rationals."""
    n = x.shape[-1]
    places = [max(Fraction(0), (Fraction(2 * i + 1) * n / m - 1) / 2) for i in range(m)]
    shares = [(min(int(p), n - 1), min(int(p) + 1, n - 1), p - int(p)) for p in places]
    result = []
    for plane in x[0].tolist():
        rows = [[Fraction(v) for v in row] for row in plane]
        for (a, b, s), (c, d, t) in itertools.product(shares, repeat=2):
            top = rows[a][c] * (1 - t) + rows[a][d] * t
            result.append(top * (1 - s) + (rows[b][c] * (1 - t) + rows[b][d] * t) * s)
    return result


def reflected(x: Tensor, angle: float) -> list[Any]:
    values = [mpmath.mpf(v) for v in x.flatten().tolist()]
    half = len(values) // 2
    t = mpmath.mpf(angle)
    pairs = []
    for a, b in zip(values[:half], values[half:], strict=True):
        if a * mpmath.sin(t / 2) - b * mpmath.cos(t / 2) <= 0:
            a, b = mpmath.cos(t) * a + mpmath.sin(t) * b, mpmath.sin(t) * a - mpmath.cos(t) * b
        pairs.append((a, b))
    return [a for a, _ in pairs] + [b for _, b in pairs]


def softmax(x: Tensor) -> list[Any]:
    powers = [mpmath.exp(v) for v in x.flatten().tolist()]
    return [p / sum(powers) for p in powers]


def normalised(layer: nn.BatchNorm2d) -> Exact:
    def rows(x: Tensor) -> list[Any]:
        result = []
        for c, plane in enumerate(x[0]):
            names = ("running_mean", "running_var", "weight", "bias")
            mean, var, w, b = (mpmath.mpf(getattr(layer, n)[c].item()) for n in names)
            root = mpmath.sqrt(var + mpmath.mpf(layer.eps))
            result += [(mpmath.mpf(v) - mean) / root * w + b for v in plane.flatten().tolist()]
        return result

    return rows


def length(values: list[float]) -> Any:
    return mpmath.sqrt(sum(mpmath.mpf(v) ** 2 for v in values))


def erf_gelu(v: Any) -> Any:
    return v * (1 + mpmath.erf(v / mpmath.sqrt(2))) / 2


def operations() -> dict[str, tuple[nn.Module, tuple[int, ...], Exact]]:
    torch.manual_seed(3)
    image = (2, 4, 4)
    conv = nn.Conv2d(2, 3, 3, padding=1)
    grouped = nn.Conv2d(2, 4, 2, groups=2, dilation=2, padding_mode="circular", padding=1)
    across = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1)
    norm = nn.BatchNorm2d(2)
    for tensor in (*norm.parameters(), *norm.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor.data, 0.01, 3)
    conv.bias.data += 1000  # type: ignore[union-attr]
    average: Exact = lambda x: [sum(map(Fraction, w)) / len(w) for w in windows(x, 4)]  # noqa: E731
    angle = torch.tensor(0.7).item()
    return {
        "conv": (conv, image, of_matrix(conv, image)),
        "circular": (grouped, image, of_matrix(grouped, image)),
        "transposed": (across, image, of_matrix(across, image)),
        "batch norm": (norm, image, normalised(norm)),
        "average": (nn.AvgPool2d(4), image, average),
        "softplus": (
            nn.Softplus(threshold=40), (8,),
            entrywise(lambda v: mpmath.log1p(mpmath.exp(v))),
        ),
        "flat softplus": (
            nn.Softplus(0.001, 40), (8,),
            entrywise(lambda v: mpmath.log1p(mpmath.exp(v * mpmath.mpf(0.001))) / mpmath.mpf(0.001)),
        ),
        "elu": (
            nn.ELU(3000.0), (8,),
            entrywise(lambda v: v if v > 0 else 3000 * mpmath.expm1(v)),
        ),
        "celu": (
            nn.CELU(3000.0), (8,),
            entrywise(lambda v: v if v > 0 else 3000 * mpmath.expm1(v / 3000)),
        ),
        "tanh": (nn.Tanh(), (8,), entrywise(mpmath.tanh)),
        "gelu": (nn.GELU(), (8,), entrywise(erf_gelu)),
        "silu": (nn.SiLU(), (8,), entrywise(lambda v: v / (1 + mpmath.exp(-v)))),
        "hardtanh": (
            nn.Hardtanh(-0.1, 0.1), (8,),
            entrywise(lambda v: max(min(v, mpmath.mpf(0.1)), mpmath.mpf(-0.1))),
        ),
        "softmax": (nn.Softmax(1), (8,), softmax),
        "log_softmax": (nn.LogSoftmax(1), (8,), lambda x: [mpmath.log(p) for p in softmax(x)]),
        "bilinear": (nn.Upsample(size=7, mode="bilinear"), image, lambda x: resized(x, 7)),
        "householder": (taut.nn.Householder(8, angle=angle), (8,), lambda x: reflected(x, angle)),
        "l2 pooling": (
            taut.nn.L2Pool2d(2), image, lambda x: [length(w) for w in windows(x, 2)]
        ),
        "vector norm": (
            Function(lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True)), (8,),
            lambda x: [length(x.flatten().tolist())],
        ),
    }  # fmt: skip


OPERATIONS = operations()


@pytest.mark.parametrize("name", OPERATIONS)
def test_errors_of_single_operations_stay_within_their_bounds(name):
    """Of the evaluation in float64, and of the execution in float32, against exact values."""
    layer, shape, exact = OPERATIONS[name]
    layer = layer.eval()
    stored = find_program(prepare(layer, "test"), shape, "test")
    program = in_double(stored, torch.device("cpu"))
    generator = torch.Generator().manual_seed(1)
    execute = direct_executor(layer, shape)
    with mpmath.workdps(60):
        for scale in (1e-6, 0.1, 1.0, 5.0, 30.0):
            for _ in range(4):
                x = torch.randn(1, *shape, generator=generator) * scale
                truth = [mpmath.mpf(t.numerator) / t.denominator if isinstance(t, Fraction) else t
                         for t in exact(x)]  # fmt: skip
                for dtype in (None, torch.float32):
                    run, limit = RoundedExecution(program, LINF, dtype, "test")(x.double())
                    assert limit.item() > 0
                    with torch.no_grad():
                        there = run.value if dtype is None else execute(x).double()
                    bound = run.bound.error if dtype is None else run.bound.far
                    off = [mpmath.mpf(v) - t
                           for v, t in zip(there.flatten().tolist(), truth, strict=True)]  # fmt: skip
                    largest = max(abs(d) for d in off)
                    if name == "hardtanh" and dtype is not None:
                        largest -= mpmath.mpf(2) ** -28  # its limits are those of float32
                    assert largest <= mpmath.mpf(bound.linf), (name, dtype, scale)
                    total = sum(abs(d) for d in off)
                    if name != "hardtanh":
                        assert total <= mpmath.mpf(bound.l1), (name, dtype, scale)


def test_limits_in_the_code_are_rounded_as_float32_has_them():
    """0.1 is another number in float32, by more than no rounding at all."""
    for layer in (nn.Hardtanh(-0.1, 0.1), nn.ConstantPad1d(1, 0.1)):
        x = torch.tensor([[[3.0, -3.0]]])
        lower, upper = bound_outputs(layer, x - 1, x + 1, "float32")
        assert ((lower <= layer(x).double()) & (layer(x).double() <= upper)).all()


def test_windows_given_by_one_number_count_all_of_their_cells():
    """Seven by seven cells are summed, not seven."""
    pool = nn.AvgPool2d(7)
    program = in_double(find_program(prepare(pool, "t"), (1, 7, 7), "t"), torch.device("cpu"))
    run, _ = RoundedExecution(program, LINF, torch.float32, "t")(torch.ones(1, 1, 7, 7).double())
    assert run.bound.far.linf >= 49 * 2.0**-24


def test_softplus_that_overflows_in_float32_is_refused():
    model = nn.Sequential(nn.Linear(1, 2), nn.Softplus(threshold=1000))
    with pytest.raises(taut.errors.NoRuleError, match="overflows in float32"):
        taut.certify(model, torch.zeros(1, 1), arithmetic="float32")


def test_squares_that_overflow_limit_the_radius():
    model = nn.Sequential(taut.nn.L2Pool2d(1), nn.Flatten(), nn.Linear(2, 2, bias=False)).eval()
    model[2].weight.data = torch.eye(2)  # type: ignore[union-attr]
    x = torch.tensor([1.7e19, 1e18]).view(1, 2, 1, 1)
    found = taut.certify(model, x, "linf", arithmetic="float32")
    assert model(x).isfinite().all() and not model(1.1 * x).isfinite().all()
    assert found.radius.item() < 0.1 * 1.7e19


@pytest.mark.parametrize("padding", [1, "same"])
@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_captured_convolutions_with_copies_at_the_border_run_directly(padding, mode):
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(2, 3, (3, 2), padding=padding, padding_mode=mode)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x).flatten(1) + 1

    model, x = Around().eval(), torch.randn(4, 2, 5, 6)
    targets = {
        getattr(node.target, "__name__", "")
        for node in find_program(prepare(model, "test"), (2, 5, 6), "test").module.graph.nodes
    }
    assert "padded_convolution" in targets
    assert torch.allclose(direct_executor(model, (2, 5, 6))(x), model(x), atol=1e-5)
