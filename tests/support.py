"""What many tests use: seeded generators, runs of the command, a small classifier."""

import shutil
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from click.testing import CliRunner, Result

from taut.cli.main import main
from taut.evaluation import EvaluatedClassifier
from taut.nn import mlp
from taut.norms import L2
from taut.training import Examples, InputSpec

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def jacobian(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> np.ndarray:
    made: Any = torch.autograd.functional.jacobian(layer, x)
    return made.numpy()


def invoke(*words: object, code: int | None = None) -> Result:
    """Runs `taut WORDS` in this process, and asserts its exit status; its threads stay as they were."""
    threads = torch.get_num_threads()
    try:
        result = CliRunner().invoke(main, [*map(str, words)], prog_name="taut")
    finally:
        torch.set_num_threads(threads)
    assert code in (None, result.exit_code), result.output
    return result


def make_classifier(
    shape: tuple[int, ...], low: float | None, high: float | None
) -> EvaluatedClassifier:
    """A small classifier of insects with 30 examples, of which it classifies 25 correctly."""
    size = prod(shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Flatten(), *mlp([size, 8, 3])).eval()
    x = torch.rand(30, *shape, generator=seeded())
    labels = model(x).argmax(1)
    labels[:5] = (labels[:5] + 1) % 3
    spec = InputSpec(shape=shape, classes=("ant", "bee", "<cat>"), low=low, high=high)
    return EvaluatedClassifier("insects", model, spec, Examples(x, labels), L2)
