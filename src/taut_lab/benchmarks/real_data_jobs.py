"""Real datasets: critics and proven intervals against exact transport."""

import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache, partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor, nn

from taut.audit import bound_lipschitz
from taut.data import load_labelled, read_table
from taut.errors import require
from taut.transport import fit_cones, fit_critic, wasserstein
from taut_lab.benchmarks.critic_records import BenchmarkJob, CriticResult, Stopwatch, estimated
from taut_lab.benchmarks.groupsort_critic import scaled_network
from taut_lab.experiments.critic_training import critic_values

Pair = tuple[Tensor, Tensor]

_METHODS = ("taut, transport", "taut, cones", "taut, network")


def real_pairs(data_dir: Path | None = None) -> dict[str, Callable[[], Pair]]:
    """Name -> a function that loads two datasets.

    Those of scikit-learn are always included; MNIST and the wine-quality tables if `data_dir` is
    given.
    """
    pairs: dict[str, Callable[[], Pair]] = {
        "wine, cultivar 0 and 1": partial(_classes, "load_wine", 0, 1, standard=True),
        "wine, cultivar 1 and 2": partial(_classes, "load_wine", 1, 2, standard=True),
        "digits, 3 and 8": partial(_classes, "load_digits", 3, 8),
        "digits, 1 and 7": partial(_classes, "load_digits", 1, 7),
    }
    if data_dir is not None:
        pairs |= {
            "wine quality, red and white": partial(_wine_quality, data_dir),
            "MNIST test, 3 and 8": partial(_mnist, data_dir),
        }
    return pairs


def real_jobs(
    *,
    seed: int,
    data_dir: Path | None = None,
    num_steps: int = 1000,
    names: tuple[str, ...] | None = None,
) -> Iterator[BenchmarkJob]:
    """For each pair, one job for exact transport and one for each kind of critic on all points.

    The true distance is POT's `emd2`. `names` selects some of the pairs.
    """
    for (name, load), method in product(real_pairs(data_dir).items(), _METHODS):
        if names is None or name in names:
            run = partial(_run, name, load, method, seed, num_steps)
            yield BenchmarkJob(f"real/{method}/{name}", 60.0 if data_dir else 10.0, run)


def _run(
    name: str, load: Callable[[], Pair], method: str, seed: int, num_steps: int
) -> CriticResult:
    x, y = load()
    truth = _exact(name, load)
    watch = Stopwatch()
    if method == "taut, transport":
        values, num_steps = estimated(wasserstein(x, y, finite=True, seed=seed)), 0
    else:
        critic = _fit(method, x, y, Generator().manual_seed(seed), num_steps)
        # Both sets are known in full, so every 1-Lipschitz function gives a lower bound.
        exact = deepcopy(critic).double().eval()
        constant = bound_lipschitz(exact, "l2", x.shape[1:]).value
        estimate = (
            critic_values(exact, x).mean() - critic_values(exact, y).mean()
        ).item() / constant
        values = {"estimate": estimate, "lower": max(0.0, estimate * (1 - 1e-9))}
    return watch.result(
        "real",
        name,
        method,
        truth=truth,
        **values | {"confidence": 1.0},
        steps=num_steps,
        sizes={"n": len(x), "m": len(y), "dim": x.shape[1]},
    )


def _fit(method: str, x: Tensor, y: Tensor, generator: Generator, num_steps: int) -> nn.Module:
    x, y = x.float(), y.float()

    def sample(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        drawn = (torch.randperm(len(side), generator=generator)[:n] for side in (x, y))
        return x[next(drawn)], y[next(drawn)]

    if method == "taut, cones":
        count = min(1024, len(x), len(y))
        fit = fit_cones(
            sample, generator=generator, num_centres=count, num_steps=num_steps, batch_size=512
        )
        return fit.critic
    both = torch.cat([x, y])
    length = (both - both.mean(0)).norm(dim=1).mean().item()
    net = scaled_network(x.shape[1], 256, length, generator)
    fit_critic(net, sample, num_steps=num_steps, batch_size=256, generator=generator, num_fresh=1)
    return net


@lru_cache(maxsize=2)
def _exact(name: str, load: Callable[[], Pair]) -> float:
    ot = require("ot", "ot", "taut bench wasserstein --part real")
    x, y = (side.double().numpy() for side in load())
    cost = np.asarray(ot.dist(x, y, metric="euclidean"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(
            np.asarray(ot.emd2(ot.unif(len(x)), ot.unif(len(y)), cost, numItermax=10_000_000))
        )


def _classes(loader: str, first: int, second: int, standard: bool = False) -> Pair:
    datasets = require("sklearn.datasets", "sklearn", "taut bench wasserstein --part real")
    values, labels = getattr(datasets, loader)(return_X_y=True)
    if standard:
        values = (values - values.mean(0)) / values.std(0)
    return torch.from_numpy(values[labels == first]), torch.from_numpy(values[labels == second])


def _wine_quality(data_dir: Path) -> Pair:
    names = (f"winequality-{hue}.csv" for hue in ("red", "white"))
    both = [read_table(min(data_dir.rglob(n), default=data_dir / n)).values for n in names]
    together = np.concatenate(both)
    centre, spread = together.mean(0), together.std(0)
    red, white = (torch.from_numpy((side - centre) / spread) for side in both)
    return red, white


def _mnist(data_dir: Path) -> Pair:
    test = load_labelled("mnist", data_dir=data_dir).test
    inputs = torch.from_numpy(np.asarray(test.inputs, dtype=np.float64)).flatten(1)
    labels = torch.from_numpy(np.asarray(test.labels))
    return inputs[labels == 3], inputs[labels == 8]
