"""AutoAttack, the standard ensemble of attacks, through pyautoattack."""

import copy
import math
import sys
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.attacks.attack_problem import AttackProblem
from taut.attacks.attack_result import AttackResult
from taut.errors import ArgumentError, check_choice, check_positive, require
from taut.norms import NormLike

_NAMES = {"l1": "L1", "l2": "L2", "linf": "Linf"}
Version = Literal["standard", "plus", "rand"]
# Its squares are placed in windows of a fifth of the side.
_LEAST_SIDE = 5


def autoattack(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    *,
    radius: float,
    norm: NormLike = "linf",
    low: float = 0.0,
    high: float = 1.0,
    seed: int = 0,
    version: Version = "standard",
    batch_size: int = 256,
) -> AttackResult:
    """The attacks of AutoAttack one after the other, evaluated in float64.

    "standard" is APGD on cross-entropy, targeted APGD, targeted FAB and Square. Losses and targets
    that need more classes than there are, are left out. Examples that overshoot by rounding are
    projected back first, so no success rests on a few units beyond the radius.

    Args:
        model: maps `(n, ...)` to `(n, classes)` or to one output; a copy is attacked.
        x: `(n, ...)`, in `[low, high]`; of any shape, though Square is made for images.
        labels: `(n,)`, the true classes.
        radius: largest perturbation.
        norm: norm of the perturbation, L1 included.
        low: smallest possible value of the data.
        high: largest possible value of the data.
        seed: random seed; torch's own generators are left as they were.
        version: "standard", "plus" or "rand".
        batch_size: number of inputs at a time.

    Raises:
        MissingExtraError: pyautoattack is not installed.
    """
    subject = "autoattack"
    package = require("pyautoattack", "attacks", subject)
    check_positive(subject, "radius", radius)
    check_choice(subject, "version", version, get_args(Version))
    if low is None or high is None:
        rule = "and `high` must be numbers, because AutoAttack needs bounded data"
        got = f"low={low}, high={high}"
        raise ArgumentError(subject, "low", rule, got, "Give the range of the data, or use pgd.")
    problem = AttackProblem.check(
        subject, model, x, labels, radius, norm, low, high, batch_size, by_gradient=False
    )
    x, labels, device = problem.x, problem.labels, problem.device
    shape, size = tuple(x.shape[1:]), math.prod(x.shape[1:])
    with problem.evaluating() as network:
        # FAB calls backward(), which would leave gradients in the parameters.
        network = copy.deepcopy(network).requires_grad_(False)
    adapter = _Adapter(network, shape, x.dtype, low, high)
    scaled = ((x - low) / (high - low)).float().clamp(0, 1)
    images = adapter.images(scaled)
    examples = x
    if len(x):
        given = {"norm": _NAMES[problem.norm.name], "eps": radius / (high - low), "seed": seed}
        attack = package.AutoAttack(adapter, version=version, device=device, **given)
        with torch.no_grad():
            _leave_out(attack, adapter(images[:1].to(device)).shape[1])
        made = _run(attack, images.to(device), labels.to(device), batch_size)
        flat = made.to(x.device).flatten(1)[:, :size].view_as(x)
        # Where nothing moved, rescaling must not move it either.
        moved = low + flat.to(x.dtype) * (high - low)
        examples = torch.where(flat == scaled, x, moved).clamp(low, high)
    return problem.evaluate(examples, f"autoattack {version}")


class _Adapter(nn.Module):
    """The network as AutoAttack needs it: square float32 images in [0, 1], at least two logits."""

    def __init__(
        self,
        network: nn.Module,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        low: float,
        high: float,
    ) -> None:
        super().__init__()
        self.network = network
        self.shape, self.dtype, self.low, self.high = shape, dtype, low, high
        square = len(shape) == 3 and shape[1] == shape[2] >= _LEAST_SIDE
        self.side = 0 if square else max(_LEAST_SIDE, math.isqrt(math.prod(shape) - 1) + 1)

    def images(self, x: Tensor) -> Tensor:
        """Other shapes as one channel, filled up to a square with entries that nobody reads."""
        if not self.side:
            return x
        flat = x.flatten(1)
        return F.pad(flat, (0, self.side**2 - flat.shape[1])).view(-1, 1, self.side, self.side)

    def forward(self, z: Tensor) -> Tensor:
        flat = z.flatten(1)[:, : math.prod(self.shape)]
        x = self.low + (self.high - self.low) * flat.to(self.dtype)
        logits = self.network(x.view(-1, *self.shape)).float()
        if logits.dim() == 1 or logits.shape[1] == 1:
            column = logits.view(-1, 1)
            return torch.cat([-column, column], 1)
        return logits


def _leave_out(attack, classes: int) -> None:
    """Leaves out what needs more classes than there are."""
    for part in (attack.apgd_targeted, attack.fab):
        part.n_target_classes = min(9, classes - 1)
    needed = {"apgd-dlr": 3, "apgd-t": 4}
    attack.attacks_to_run = [n for n in attack.attacks_to_run if classes >= needed.get(n, 2)]


def _run(attack, images: Tensor, labels: Tensor, batch_size: int) -> Tensor:
    # It seeds torch's own generators, and stops whoever traces this process.
    tracer = sys.gettrace()
    devices = [images.device] if images.device.type == "cuda" else []
    try:
        with torch.inference_mode(False), torch.random.fork_rng(devices):
            made, _ = attack.run_standard_evaluation(images, labels, batch_size=batch_size)
            return made.detach()
    finally:
        sys.settrace(tracer)
