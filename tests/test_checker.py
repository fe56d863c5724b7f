"""The independent checker: it agrees with the audit, and accepts nothing that is false."""

import ast
import json
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

import taut
from export.forging import BLANK, forge, split
from rules.test_capabilities import SAVED, network
from taut import checker, rules
from taut import nn as tnn
from taut.audit import prepare

FILE = Path(checker.__file__)


def saved(model: nn.Module, folder: Path, **kwargs: Any) -> bytes:
    taut.save(model, folder / "net", **kwargs)
    return (folder / "net").read_bytes()


def test_it_is_one_short_file_that_needs_numpy_alone(tmp_path):
    text = FILE.read_text()
    assert len(text.splitlines()) <= 563
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add((node.module or "").split(".")[0])
    assert names <= sys.stdlib_module_names | {"numpy"}
    (tmp_path / "alone.py").write_text(text)
    data = saved(tnn.mlp([3, 4, 2], lipschitz=2.0), tmp_path)

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "alone.py", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    good = run("net")
    assert good.returncode == 0 and good.stdout.startswith("proven: ")
    assert json.loads(good.stdout.removeprefix("proven: ")) == checker.check(data)
    (tmp_path / "cut").write_bytes(data[:-1])
    bad = run("cut")
    assert bad.returncode == 1
    assert bad.stderr.startswith("refused: ") and len(bad.stderr.splitlines()) == 1
    assert run("net", checker.check(data)["sha256"]).returncode == 0
    for wrong in (["net", "0" * 64], ["nothing"], []):
        assert run(*wrong).returncode == 1 and run(*wrong).stderr.startswith("refused: ")


def images(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers)


PICTURES: dict[str, Any] = {"input_shape": (3, 8, 8)}
AGREEING: dict[str, tuple[Any, dict[str, Any]]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)), {}),
    "one layer": (lambda: nn.Linear(4, 3), {}),
    "l1 to l2": (lambda: nn.Linear(4, 3), {"norm": "l1", "output_norm": "l2"}),
    "linf to l1": (lambda: nn.Linear(4, 3), {"norm": "linf", "output_norm": "l1"}),
    "l2 to linf": (lambda: tnn.MixedLinear(4, 3, "l2"), {}),
    "linf": (lambda: tnn.mlp([4, 8, 3], constraint="linf"), {}),
    "l1": (lambda: nn.Sequential(tnn.L1Linear(4, 8), tnn.Abs(), tnn.L1Linear(8, 2)), {}),
    "orthonormal": (lambda: tnn.mlp([4, 8, 3], lipschitz=3.0), {}),
    "bjorck": (lambda: tnn.mlp([4, 8, 3], constraint="bjorck"), {}),
    "spectral": (lambda: tnn.mlp([4, 8, 3], constraint="spectral"), {}),
    "parseval": (lambda: tnn.mlp([4, 8, 3], constraint="parseval"), {}),
    "float64": (lambda: tnn.mlp([4, 8, 3]).double(), {}),
    "half": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU()).bfloat16(), {}),
    "slopes": (
        lambda: nn.Sequential(
            nn.Linear(4, 8),
            nn.LeakyReLU(-3.0),
            nn.ELU(2.0),
            nn.GELU(),
            nn.GELU("tanh"),
            nn.SiLU(),
            nn.Softplus(2.0, 50.0),
            nn.Hardtanh(),
            nn.Tanh(),
            nn.Sigmoid(),
            tnn.Scale(-7.5),
            nn.Dropout(),
            tnn.FullSort(),
            tnn.Maxout(2),
            tnn.Householder(4),
        ),
        {"norm": "linf"},
    ),
    "shared": (lambda: nn.Sequential(*[nn.Linear(4, 4)] * 3), {}),
    "residual": (lambda: tnn.Residual(tnn.OrthonormalLinear(4, 4)), {}),
    "residual with a shortcut": (
        lambda: tnn.Residual(nn.Conv2d(3, 4, 3, padding=1), "add", -0.3, nn.Conv2d(3, 4, 1)),
        PICTURES,
    ),
    "zeros": (lambda: images(), PICTURES),
    "zeros of any size": (lambda: images(), {}),
    "circular": (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), PICTURES),
    "circular of any size": (lambda: nn.Conv2d(3, 4, 3, 2, 1, padding_mode="circular"), {}),
    "circular, another stride": (
        lambda: nn.Conv2d(3, 4, 3, 3, 1, padding_mode="circular"),
        PICTURES,
    ),
    "reflected": (lambda: nn.Conv2d(3, 4, 3, padding=2, padding_mode="reflect"), PICTURES),
    "replicated": (lambda: nn.Conv2d(3, 4, 3, padding=2, padding_mode="replicate"), {}),
    "stride": (lambda: nn.Conv2d(3, 4, 5, (2, 3), 2), PICTURES),
    "dilation": (lambda: nn.Conv2d(3, 6, 3, 2, 3, dilation=3, groups=3), PICTURES),
    "same": (lambda: nn.Conv2d(3, 4, 4, padding="same"), PICTURES),
    "one pixel": (lambda: nn.Conv2d(3, 4, 3, padding=1), {"input_shape": (3, 1, 2)}),
    "one dimension": (lambda: nn.Conv1d(4, 4, 5, 2, dilation=3), {"input_shape": (4, 40)}),
    "three dimensions": (lambda: nn.Conv3d(2, 3, 3, 2, 1), {"input_shape": (2, 5, 4, 6)}),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 4, 2, 1, 1), PICTURES),
    "transposed, l1": (lambda: nn.ConvTranspose2d(3, 4, 4, 2, 1), {**PICTURES, "norm": "l1"}),
    "orthonormal convolution": (
        lambda: nn.Sequential(
            tnn.OrthonormalConv2d(3, 8, 3, padding=1), tnn.OrthonormalConv2d(8, 8, 4, 2, 1)
        ),
        {},
    ),
    "orthonormal and transposed": (lambda: tnn.OrthonormalConvTranspose2d(8, 3, 4, 2, 1), {}),
    "spectral convolution": (
        lambda: tnn.SpectralConv2d(3, 8, 3, padding=1, padding_mode="circular"),
        PICTURES,
    ),
    "linf convolution": (lambda: tnn.LinfConv2d(3, 4, 3, padding=1, padding_mode="reflect"), {}),
    "average": (lambda: images(nn.AvgPool2d(2), nn.AvgPool2d(3, 2, 1)), PICTURES),
    "average, l1": (lambda: images(nn.AvgPool2d(3, 2)), {**PICTURES, "norm": "l1"}),
    "max": (lambda: images(nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 1, dilation=2)), PICTURES),
    "max of all": (lambda: images(nn.MaxPool2d(8, 1)), {**PICTURES, "norm": "l1"}),
    "l2 pooling": (lambda: images(tnn.L2Pool2d(2)), {**PICTURES, "norm": "linf"}),
    "distances": (
        lambda: nn.Sequential(tnn.LinfDistance(4, 7), tnn.Centering(7), tnn.SortDistance(7, 3)),
        {"norm": "linf", "input_shape": (4,)},
    ),
    "distances of patches": (
        lambda: nn.Sequential(
            tnn.Clip(0.2, 0.7), tnn.LinfDistance2d(2, 3, 3, stride=2, padding=1), nn.Flatten()
        ),
        {"norm": "linf", "input_shape": (2, 7, 6)},
    ),
    "distances of patches, l2": (
        lambda: nn.Sequential(tnn.Scale(2.0), tnn.LinfDistance2d(2, 3, 3, padding=2)),
        {"norm": "l2", "input_shape": (2, 4, 5)},
    ),
    "distances of many points": (
        lambda: nn.Sequential(tnn.SortDistance(4, 7, q=0.3), tnn.LinfDistance(7, 2)),
        {"norm": "l1", "input_shape": (3, 4)},
    ),
    "the rest": (
        lambda: images(
            nn.BatchNorm2d(4),
            tnn.Centering(4),
            tnn.MaxMin(1),
            tnn.GroupSort(2, 1),
            tnn.InvertibleDownsampling2d(2),
            nn.ZeroPad2d((1, 0, 2, 1)),
            nn.Flatten(1, 2),
            nn.Flatten(),
            nn.Identity(),
            nn.Linear(16 * 7 * 5, 3),
        ),
        {**PICTURES, "norm": "linf", "output_norm": "l2"},
    ),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("name", AGREEING)
def test_it_agrees_with_the_audit(name, tmp_path):
    make, options = AGREEING[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_var is not None
            nn.init.uniform_(module.running_var, 0.1, 2)
            nn.init.normal_(module.weight)
    data = saved(model, tmp_path, **options)
    report = checker.check(data)
    loaded = taut.load(tmp_path / "net")
    norms = report["norm"], report["output_norm"]
    audited = taut.bound_lipschitz(loaded, norms[0], options.get("input_shape"), norms[1]).value
    assert audited * (1 - 1e-9) <= report["constant"] <= audited * (1 + 1e-9)
    assert report["constant"] <= report["claimed"] <= audited * (1 + 1e-9)


# Layers that the checker refuses by name; `load` proves them.
BEYOND: tuple[type[nn.Module], ...] = (
    tnn.AdaptiveL2Pool2d,
    tnn.PairLength,
    tnn.ScaledAdaptiveAvgPool2d,
)


@pytest.mark.parametrize("kind", BEYOND, ids=lambda kind: kind.__name__)
def test_layers_beyond_it_are_refused_by_name_and_proven_by_load(kind, tmp_path):
    model, shape = network(kind)
    data = saved(model, tmp_path, input_shape=shape)
    taut.load(tmp_path / "net")
    with pytest.raises(checker.Refused, match=f"`0` .{kind.__name__}. is not a layer that this"):
        checker.check(data)


@pytest.mark.parametrize(
    "kind", [kind for kind in SAVED if kind not in BEYOND], ids=lambda kind: kind.__name__
)
def test_it_proves_every_layer_that_a_file_can_name(kind, tmp_path):
    model, shape = network(kind)
    for module in model.modules():
        if isinstance(module, (tnn.PotentialStep, tnn.PotentialStep2d, tnn.SandwichStep)):
            nn.init.normal_(module.weight)  # zeros at first
        if isinstance(module, tnn.LipschitzBatchNorm):
            nn.init.uniform_(module.running_var, 0.5, 4)
    data = saved(model, tmp_path, input_shape=shape)
    checker.check(data)
    header, tensors = split(data)
    arrays = {name: value.astype(float) for name, value in tensors.items()}
    for norm in ("l1", "l2", "linf"):
        proven = checker.prove({**header, "norm": norm, "output_norm": norm}, arrays)
        audited = taut.bound_lipschitz(model, norm, shape).value
        assert audited * (1 - 1e-9) <= proven <= audited * (1 + 1e-9)
        assert steepest(model, shape, norm) <= proven * (1 + 1e-9)
    for path in header["witnesses"]:
        smaller = json.loads(json.dumps(header["witnesses"]))
        smaller[path]["l2"] *= 1 - 1e-6
        with pytest.raises(checker.NotProven):
            checker.prove({**header, "witnesses": smaller}, arrays)


def steepest(model: nn.Module, shape: tuple[int, ...], norm: str) -> float:
    """The largest norm of the Jacobian at some points, in float64."""
    double = prepare(model, "test").model.double()
    points = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    size = points[0].numel()
    rows = [jacobian(lambda x: double(x)[0], 3 * x[None]) for x in points]
    return max(induced(row.reshape(-1, size).numpy(), norm) for row in rows)


def test_what_it_does_not_know_is_refused_by_name(tmp_path):
    """All that a file can name and the checker refuses; `save` still writes it, and `load` proves it."""

    class Halve(nn.Tanh):
        """A layer of somebody else's."""

    record = rules.find_record(nn.Tanh())
    assert record is not None
    rules.register(Halve, file=rules.FileSchema(Halve), call=record.call)
    cut = "windows cut at the border are not known"
    refused: list[tuple[nn.Module, str]] = [
        (nn.AvgPool2d(3, 2, ceil_mode=True), f".AvgPool2d.: {cut}"),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), f".AvgPool2d.: {cut}"),
        (tnn.L2Pool2d(3, 2, ceil_mode=True), f".L2Pool2d.: {cut}"),
        (nn.AdaptiveAvgPool2d(3), ".AdaptiveAvgPool2d.: windows that do not divide"),
        (nn.AdaptiveMaxPool2d(3), ".AdaptiveMaxPool2d.: windows that do not divide"),
        (Halve(), ".Halve. is not a layer that this checker knows"),
    ]
    for layer, reason in refused:
        data = saved(images(layer), tmp_path, **PICTURES)
        taut.load(tmp_path / "net")
        with pytest.raises(checker.Refused, match=f"`1` {reason}"):
            checker.check(data)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 30), (30, 40), (200, 200)])
def test_the_matrix_theorem_decides_at_nine_digits(shape):
    """Against singular values of float64, on matrices of random, orthonormal and rank-one kind."""
    draw = np.random.default_rng(0)
    for scale in (1e-30, 1.0, 1e30):
        full = draw.standard_normal(shape)
        square, _ = np.linalg.qr(draw.standard_normal((max(shape), max(shape))))
        for weight in (full, square[: shape[0], : shape[1]], np.outer(full[:, 0], full[0])):
            weight = scale * weight
            norm = float(np.linalg.svd(weight, compute_uv=False)[0])
            assert checker.norm_at_most(weight[None], Fraction(norm * (1 + 1e-9)))
            assert not checker.norm_at_most(weight[None], Fraction(norm * (1 - 1e-9)))


def unrolled(kernel: torch.Tensor, shape: tuple[int, ...], options: dict[str, Any]) -> np.ndarray:
    """The matrix of a convolution, from the images of all unit vectors, in float64."""
    basis = torch.eye(int(np.prod(shape)), dtype=torch.float64).reshape(-1, *shape)
    mode = options["padding_mode"]
    if options["transposed"]:
        image = F.conv_transpose2d(
            basis, kernel.double(), None, options["stride"], options["padding"]
        )
    elif mode == "zeros":
        image = F.conv2d(basis, kernel.double(), None, options["stride"], options["padding"])
    else:
        padded = F.pad(basis, [options["padding"]] * 4, mode=mode)
        image = F.conv2d(padded, kernel.double(), None, options["stride"])
    return image.flatten(1).T.numpy()


def induced(matrix: np.ndarray, norm: str) -> float:
    order: Any = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    return float(np.linalg.norm(matrix, order))


@pytest.mark.parametrize("seed", range(30))
def test_no_constant_of_a_convolution_is_below_the_truth(seed, tmp_path):
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "stride": draw.choice([1, 2, 3]),
        "padding": draw.choice([0, 1, 2]),
        "padding_mode": draw.choice(["zeros", "zeros", "circular", "reflect", "replicate"]),
    }
    transposed = options["padding_mode"] == "zeros" and draw.random() < 0.5
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    model = kind(2, 3, draw.choice([2, 3, 5]), **options)
    shape = (2, draw.choice([5, 7]), draw.choice([5, 6]))
    known = draw.random() < 0.7
    for norm in ("l1", "l2", "linf"):
        data = saved(model, tmp_path, norm=norm, input_shape=shape if known else None)
        proven = checker.check(data)["constant"]
        matrix = unrolled(model.weight.detach(), shape, {**options, "transposed": transposed})
        assert proven >= induced(matrix, norm) * (1 - 1e-12)
        header, tensors = split(data)
        lower = induced(matrix, norm) * (1 - 1e-6)
        header |= {"constant": lower, "sha256": BLANK}
        for witness in header["witnesses"].values():
            witness["l2"] = min(witness["l2"], lower)
        with pytest.raises(checker.Refused):
            checker.check(forge(header, tensors))


def dense_network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), tnn.OrthonormalLinear(8, 8), tnn.Scale(2.0))


def conv_network() -> nn.Module:
    around: dict[str, Any] = {"padding": "same", "padding_mode": "circular"}
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, **around), tnn.OrthonormalConv2d(3, 3, 3, **around), tnn.Scale(2.0)
    )


def truth(header: dict[str, Any], tensors: dict[str, np.ndarray]) -> float:
    """A number that the constant of the (linear) network of a file is not below."""
    matrix = np.eye(int(np.prod(header["input_shape"])))
    shape = tuple(header["input_shape"])
    for name, child in header["model"]["children"]:
        if child["kind"] == "Scale":
            matrix = child["arguments"]["factor"] * matrix
            continue
        weight = tensors.get(f"evaluation:{name}", tensors[f"{name}.weight"])
        if child["kind"].endswith("Linear"):
            matrix = weight.astype(float) @ matrix
        else:
            options = {"stride": 1, "padding": 1, "padding_mode": "circular", "transposed": False}
            matrix = unrolled(torch.from_numpy(weight), shape, options) @ matrix
            shape = (len(weight), *shape[1:])
    norms = header["norm"], header["output_norm"]
    if norms[0] == norms[1]:
        return induced(matrix, norms[0])
    orders: Any = {"l1": 1, "l2": 2, "linf": np.inf}
    probes = np.concatenate([np.eye(matrix.shape[1]), np.sign(matrix), matrix]).T
    before = np.linalg.norm(probes, orders[norms[0]], axis=0)
    after = np.linalg.norm(matrix @ probes, orders[norms[1]], axis=0)
    return float((after[before > 0] / before[before > 0]).max())


def mutate(draw: random.Random, header: dict[str, Any], tensors: dict[str, np.ndarray]) -> str:
    """Changes a weight, a witness or a claim in place, in a random way."""
    kind = draw.choice(["weight", "weight", "witness", "claim"])
    factor = draw.choice([0.0, 0.5, 1 - 1e-3, 1 - 1e-6, 1 + 1e-6, 1 + 1e-3, 2.0, -1.0])
    if kind == "weight":
        name = draw.choice(sorted(tensors))
        flat = tensors[name].reshape(-1)
        if draw.random() < 0.3:
            flat *= flat.dtype.type(factor)
        elif draw.random() < 0.5:
            flat[draw.randrange(len(flat))] += flat.dtype.type(
                draw.choice([-1, 1]) * 10.0 ** draw.randint(-6, 3)
            )
        else:
            bits = flat.view(np.uint32)
            bits[draw.randrange(len(bits))] ^= np.uint32(1 << draw.randrange(32))
    elif kind == "witness":
        witness = header["witnesses"][draw.choice(sorted(header["witnesses"]))]
        what = draw.choice(["l2", "l2", "l2", "route", "frequencies"])
        if what == "l2":
            witness["l2"] *= factor
        elif what == "route":
            witness["route"] = draw.choice(["zeros", "circle", "padding", "dense", None])
        else:
            witness["frequencies"] = [draw.randint(1, 9) for _ in range(draw.randint(0, 3))]
    else:
        what = draw.choice(["constant", "constant", "norm", "output_norm", "input_shape", "factor"])
        if what == "constant":
            header["constant"] *= factor
        elif what == "input_shape":
            header["input_shape"][-1] += draw.choice([-1, 1])
        elif what == "factor":
            header["model"]["children"][-1][1]["arguments"]["factor"] *= factor
        else:
            header[what] = draw.choice(["l1", "l2", "linf"])
    return kind


@pytest.mark.parametrize(
    ("make", "shape"), [(dense_network, (6,)), (conv_network, (2, 5, 5))], ids=["dense", "conv"]
)
def test_five_hundred_mutations(make, shape, tmp_path):
    """Refused with the old checksum; with a new one, refused unless the claim is still true."""
    torch.manual_seed(0)
    good = saved(make(), tmp_path, input_shape=shape)
    header, tensors = split(good)
    digest = checker.check(good)["sha256"]
    assert truth(header, tensors) >= header["constant"] * (1 - 1e-5)  # the claim is tight
    draw = random.Random(0)
    refused = 0
    for _ in range(500):
        changed: Any = (json.loads(json.dumps(header)), {n: t.copy() for n, t in tensors.items()})
        while changed[0] == header and all(
            np.array_equal(changed[1][n], tensors[n]) for n in tensors
        ):
            mutate(draw, *changed)
        old = forge({**changed[0], "sha256": header["sha256"]}, changed[1])
        with pytest.raises(checker.Refused, match="checksum|truncated|out of range"):
            checker.check(old)
        data = forge({**changed[0], "sha256": BLANK}, changed[1])
        with pytest.raises(checker.Refused, match="SHA-256"):
            checker.check(data, digest)
        try:
            checker.check(data)
        except checker.Refused:
            refused += 1
        else:
            assert truth(*changed) <= changed[0]["constant"] * (1 + 1e-12)
    assert refused >= 200
    print(f"refused {refused}, accepted and true {500 - refused}")


def test_a_name_stands_for_one_layer(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), tnn.Scale(10.0), tnn.Scale(0.1))
    header, tensors = split(saved(model, tmp_path, input_shape=(3,)))
    header["model"]["children"][2][0] = "1"
    with pytest.raises(checker.Refused, match="`1` names two layers"):
        checker.check(forge({**header, "sha256": BLANK}, tensors))


def test_batch_normalisation_with_negative_eps_is_refused(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    header, tensors = split(saved(model, tmp_path, input_shape=(3,)))
    header["model"]["children"][1][1]["arguments"]["eps"] = -0.5
    with pytest.raises(checker.Refused, match="`eps` is negative"):
        checker.prove(header, {name: value.astype(float) for name, value in tensors.items()})


def test_malformed_files_are_refused_in_one_line(tmp_path):
    good = saved(conv_network(), tmp_path, input_shape=(2, 5, 5))
    draw = random.Random(1)
    for _ in range(300):
        header, tensors = split(good)
        spots: list[tuple[Any, Any]] = []
        waiting: list[Any] = [header]
        while waiting:
            part = waiting.pop()
            keys = list(part) if isinstance(part, dict) else range(len(part))
            spots += [(part, key) for key in keys]
            waiting += [part[key] for key in keys if isinstance(part[key], (dict, list))]
        part, key = draw.choice([spot for spot in spots if spot[1] not in ("sha256", "versions")])
        junk = [None, -1, 0, 2**40, 1e308, float("nan"), "x", [], [-1], {}, True, [[]]]
        part[key] = draw.choice(junk)
        try:
            checker.check(forge({**header, "sha256": BLANK}, tensors))
        except checker.Refused as error:
            assert "\n" not in str(error)
