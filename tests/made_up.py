"""Experiments of no meaning, whose cells draw, linger, fail or take their worker with them.

Every run leaves a mark in a folder: what was computed, and how often, is counted from outside.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from taut.lab.exhibit import Entry, Exhibit, ResultTable
from taut.lab.experiment import Experiment, Outcome


def mark(config):
    place = Path(config["marks"])
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{config['seed']}.{os.getpid()}.{time.time_ns()}").touch()
    return place


def count(folder: Path) -> dict[int, int]:
    """Seed -> how often its cell was begun."""
    seeds = [int(path.name.split(".")[0]) for path in folder.iterdir()] if folder.exists() else []
    return {seed: seeds.count(seed) for seed in sorted(set(seeds))}


def run(config):
    place = mark(config)
    for _ in range(config.get("steps", 0)):
        time.sleep(0.05)
        if (place.parent / "go").exists():
            break
    if config.get("do") == "raise" and not (place.parent / "mended").exists():
        raise LookupError(f"no cell {config['seed']}")
    if config.get("do") == "leave":
        raise SystemExit(3)
    if config.get("do") == "tensor":
        return Outcome({"drawn": torch.zeros(1)})  # pyright: ignore[reportArgumentType]
    if config.get("do") == "die" and len(list(place.glob(f"{config['seed']}.*"))) <= config["dies"]:
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


def show(results):
    drawn = [result.outcome.numbers["drawn"] for result in results]
    table = ResultTable("Draws", ["drawn", "never"], {"a row": [Entry(drawn, 0.5), Entry()]})
    return Exhibit([table], None, ["Draws are draws."])


def experiment(
    marks: Path, name: str = "made-up", seeds: Iterable[Any] = range(3), needs=(), **extra
) -> Experiment:
    """`extra` is seed -> what its configuration holds besides, with an s before the seed."""

    def configs(preset):
        return [
            {
                "seed": seed,
                "marks": str(marks),
                **({"steps": 1} if preset == "paper" else {}),
                **extra.get("every", {}),
                **extra.get(f"s{seed}", {}),
            }
            for seed in (seeds if preset != "smoke" else list(seeds)[:2])
        ]

    return Experiment(
        name, f"tab:{name}", "Draws", "Seeds decide.", configs, run, show, needs=tuple(needs)
    )
