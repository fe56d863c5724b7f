"""Experiments without meaning, for tests: cells that draw, wait, fail or kill their worker.

Every run leaves a marker file, so that tests can count what was computed, and how often.
"""

import os
import pickle
import signal
import time
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from taut_lab.framework import Experiment, Outcome, Presentation, ResultTable, TableEntry
from taut_lab.framework.workers import LostWorkerError


def leave_marker(config):
    folder = Path(config["markers"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{config['seed']}.{os.getpid()}.{time.time_ns()}").touch()
    return folder


def count(folder: Path) -> dict[int, int]:
    """Seed -> how often its cell was started."""
    seeds = [int(path.name.split(".")[0]) for path in folder.iterdir()] if folder.exists() else []
    return {seed: seeds.count(seed) for seed in sorted(set(seeds))}


def run(config):
    folder = leave_marker(config)
    for _ in range(config.get("steps", 0)):
        time.sleep(0.05)
        if (folder.parent / "go").exists():
            break
    action = config.get("do")
    if action == "raise" and not (folder.parent / "fixed").exists():
        raise LookupError(f"no cell {config['seed']}")
    if action == "exit":
        raise SystemExit(3)
    if action == "tensor":
        return Outcome({"drawn": torch.zeros(1)})  # pyright: ignore[reportArgumentType]
    if action == "die" and len(list(folder.glob(f"{config['seed']}.*"))) <= config["dies"]:
        os.kill(os.getpid(), signal.SIGKILL)
    generator = torch.Generator().manual_seed(config["seed"])
    return Outcome(
        {
            "drawn": torch.rand((), generator=generator).item(),
            "global": torch.rand(()).item(),
            "threads": torch.get_num_threads(),
            "pid": os.getpid(),
        },
        curve=[{"step": 0, "loss": float("nan")}],
        series={"data": os.environ.get("TAUT_DATA"), "ends": [float("-inf"), (1, float("inf"))]},
    )


def drawn(seed: int) -> float:
    """The number "drawn" of a cell with this seed."""
    return torch.rand((), generator=torch.Generator().manual_seed(seed)).item()


def show(results):
    values = [result.outcome.numbers["drawn"] for result in results]
    row = [TableEntry(values, 0.5), TableEntry()]
    table = ResultTable("Draws", ["drawn", "never"], {"a row": row})
    return Presentation([table], None, ["Random numbers."])


def experiment(
    markers: Path, name: str = "fake", seeds: Iterable[Any] = range(3), data=None, **extra
) -> Experiment:
    """`extra` holds further fields of the configurations: `every={...}`, `s1={...}` for seed 1."""

    def configs(preset):
        return [
            {
                "seed": seed,
                "markers": str(markers),
                **({"steps": 1} if preset == "paper" else {}),
                **({"data": data} if data and preset != "smoke" else {}),
                **extra.get("every", {}),
                **extra.get(f"s{seed}", {}),
            }
            for seed in (seeds if preset != "smoke" else list(seeds)[:2])
        ]

    return Experiment(
        name,
        f"tab:{name}",
        "Draws",
        "The seed determines the draw.",
        configs,
        run,
        show,
    )


def register(monkeypatch, *experiments: Experiment) -> None:
    """Replaces the registry by these experiments."""
    from taut_lab.experiments import registry

    monkeypatch.setattr(registry, "EXPERIMENTS", {made.name: made for made in experiments})


class InProcessWorkers:
    """Computes every call at once, in this process.

    Args:
        deaths: seed -> how often the worker of its cell dies first.
    """

    def __init__(self, jobs=1, deaths=()):
        self.num_workers = jobs
        self.deaths = dict(deaths)
        self.keys = []

    def submit(self, key, function, *args):
        self.keys.append(key)
        future: Future = Future()
        seed = getattr(args[1], "config", {}).get("seed")
        if self.deaths.get(seed, 0):
            self.deaths[seed] -= 1
            future.set_exception(LostWorkerError(rule="gone"))
        else:
            # As on its way to another process and back.
            function, args = pickle.loads(pickle.dumps((function, args)))
            future.set_result(pickle.loads(pickle.dumps(function(*args))))
        return future

    def close(self):
        pass


def tasks(made: Experiment, preset: str = "cpu"):
    return [(made, cell) for cell in made.cells(preset)]
