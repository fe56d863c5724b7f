"""The zoo: 1-Lipschitz layers in one network shape, each trained for the same CPU time."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from taut.certificates import certify
from taut.data import LabelledSet
from taut.errors import ArgumentError, NoRuleError
from taut.losses import OffsetCrossEntropy
from taut.training import Examples
from taut_lab.benchmarks.timing_records import BenchmarkRecord, check_kind
from taut_lab.benchmarks.zoo_layers import plain_network, zoo_blocks, zoo_network
from taut_lab.framework.datasets import load_dataset
from taut_lab.framework.records import to_json

# Radius in L2 by dataset, as the literature reports it.
RADII = {"cifar10-25k": 36 / 255, "cifar10": 36 / 255, "mnist": 1.58}
_KIND = "taut bench zoo"


@dataclass(frozen=True)
class ZooSettings:
    """Settings that all layers of a zoo share."""

    data: str = "cifar10-25k"  # one of `RADII`
    minutes: float = 15.0  # CPU time of training, in minutes
    trial_share: float = 0.08  # CPU time of each trial of a learning rate, as a share of `minutes`
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)  # learning rates of Adam to choose from
    batch: int = 128  # batch size
    channels: int = 16  # channels of the first half of the network
    depth: int = 3  # blocks in each half
    seed: int = 0  # random seed

    @property
    def radius(self) -> float:
        """The radius at which accuracy is certified."""
        return RADII[self.data]

    @property
    def loss(self) -> OffsetCrossEntropy:
        r"""Offset $2\sqrt2 r$ with temperature $1.6/(2\sqrt2 r)$, as in the comparison by Prach et al."""
        offset = 2 * math.sqrt(2) * self.radius
        return OffsetCrossEntropy(offset, 1.6 / offset)


@dataclass(frozen=True)
class ZooRecord(BenchmarkRecord):
    """One layer of the zoo."""

    layer: str  # name of the layer
    settings: Mapping[str, Any]  # fields of `ZooSettings`
    clean: float  # test accuracy
    certified: float | None  # certified test accuracy at the radius; None without a proven constant
    lipschitz: float | None  # proven constant of the network in L2; None if taut has no rule for it
    rate: float  # learning rate that the trials chose
    trials: Mapping[str, float]  # validation loss of each rate
    steps: int  # number of training steps
    fit_cpu: float  # CPU time of training in seconds, without trials
    epochs: float  # passes over the training images
    parameters: int  # number of trained numbers
    memory: int  # bytes of parameters, gradients, optimiser state and one backward pass
    training_loss: float  # mean loss of the last hundred steps
    cpu: float  # CPU time in all, with trials and certificates
    wall: float  # wall-clock time in all
    kind: str = _KIND

    @property
    def step_cpu(self) -> float:
        """Mean CPU time of a step in seconds."""
        return self.fit_cpu / self.steps

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        check_kind(plain, _KIND)
        return super().from_json(plain)


def read_zoo(folder: Path) -> list[ZooRecord]:
    """The records of a folder, the most certified accuracy first."""
    records = [ZooRecord.read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(records, key=lambda record: (-(record.certified or 0.0), -record.clean))


def run_zoo(
    settings: ZooSettings,
    folder: Path,
    *,
    data_dir: str | None = None,
    layers: Iterable[str] = (),
    peers: bool = True,
    on_layer: Callable[[str], None] = lambda name: None,
    on_record: Callable[[ZooRecord], None] = lambda record: None,
) -> list[ZooRecord]:
    """Trains and certifies every layer that has no record yet.

    Args:
        settings: settings that all layers share.
        folder: one JSON file for each layer, written when the layer is finished; all are returned.
        data_dir: folder of the dataset; None for the variable `TAUT_DATA`.
        layers: names, or parts of names, of the layers to run; by default all.
        peers: whether to include other libraries, if they are installed.
        on_layer: called before a layer is trained.
        on_record: called after it.
    """
    wanted = tuple(layers)
    blocks = {
        name: block
        for name, block in zoo_blocks(peers).items()
        if not wanted or any(part.lower() in name.lower() for part in wanted)
    }
    if not blocks:
        rule = f"must be names, or parts of names, of {', '.join(zoo_blocks(peers))}"
        raise ArgumentError("run_zoo", "layers", rule, ", ".join(map(repr, wanted)))
    plain = to_json(asdict(settings))
    for record in read_zoo(folder):
        if record.settings != plain:
            rule = f"must hold records with the settings {plain}"
            got = f"{str(folder)!r}, where {record.layer} has {dict(record.settings)}"
            remedy = "Use the same settings, or another folder."
            raise ArgumentError("run_zoo", "folder", rule, got, remedy)
    data = load_dataset(settings.data, data_dir)
    for name, block in blocks.items():
        path = folder / (re.sub(r"\W+", "-", name).strip("-").lower() + ".json")
        if not path.exists():
            on_layer(name)
            record = _run_layer(name, block, settings, data.train, data.test)
            record.write(path)
            on_record(record)
    return read_zoo(folder)


def _run_layer(
    name: str,
    block: Callable[[int], nn.Module],
    settings: ZooSettings,
    train: LabelledSet,
    test: LabelledSet,
) -> ZooRecord:
    wall, cpu = time.perf_counter(), time.process_time()
    colours, height, width = train.inputs.shape[1:]

    def new() -> nn.Sequential:
        torch.manual_seed(settings.seed)
        size = {"channels": settings.channels, "depth": settings.depth}
        return zoo_network(block, (colours, height, width), len(train.classes), **size)

    with torch.random.fork_rng(devices=[]):
        fit, held_out = (_examples(part) for part in train.split(0.1, settings.seed))
        trials = {}
        for rate in settings.rates:
            network = new()
            _fit(network, fit, settings, rate, 60 * settings.minutes * settings.trial_share)
            trials[rate] = _mean_loss(network.eval(), held_out, settings)
        rate = min(trials, key=lambda rate: (math.isnan(trials[rate]), trials[rate]))
        network, examples = new(), _examples(train)
        memory = _memory(network, examples, settings)
        steps, fit_cpu, loss = _fit(network, examples, settings, rate, 60 * settings.minutes)
    clean, certified, lipschitz = _certify(network.eval(), _examples(test), settings.radius)
    return ZooRecord(
        layer=name,
        settings=to_json(asdict(settings)),
        clean=clean,
        certified=certified,
        lipschitz=lipschitz,
        rate=rate,
        trials={f"{rate:g}": value for rate, value in trials.items()},
        steps=steps,
        fit_cpu=fit_cpu,
        epochs=steps * settings.batch / len(examples),
        parameters=sum(p.numel() for p in network.parameters()),
        memory=memory,
        training_loss=loss,
        cpu=time.process_time() - cpu,
        wall=time.perf_counter() - wall,
    )


def _examples(rows: LabelledSet) -> Examples:
    return Examples(torch.as_tensor(rows.inputs).float(), torch.as_tensor(rows.labels).long())


def _fit(
    network: nn.Module, examples: Examples, settings: ZooSettings, rate: float, seconds: float
) -> tuple[int, float, float]:
    """Adam until the CPU time is over: number of steps, CPU time, mean loss of the last hundred."""
    generator = torch.Generator().manual_seed(settings.seed)
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    losses: list[float] = []
    order = torch.empty(0, dtype=torch.long)
    start = time.process_time()
    while not losses or time.process_time() - start < seconds:
        share = min(1.0, (time.process_time() - start) / seconds)
        warm = min(1.0, (len(losses) + 1) / 20)
        optimiser.param_groups[0]["lr"] = rate * warm * (1 + math.cos(math.pi * share)) / 2
        if len(order) < settings.batch:
            order = torch.randperm(len(examples), generator=generator)
        rows, order = order[: settings.batch], order[settings.batch :]
        optimiser.zero_grad()
        loss = settings.loss(network(examples.inputs[rows]), examples.labels[rows])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    last = losses[-100:]
    return len(losses), time.process_time() - start, sum(last) / len(last)


@torch.no_grad()
def _mean_loss(network: nn.Module, examples: Examples, settings: ZooSettings) -> float:
    logits = torch.cat([network(x) for x in examples.inputs.split(500)])
    return settings.loss(logits, examples.labels).item()


def _memory(network: nn.Module, examples: Examples, settings: ZooSettings) -> int:
    """Bytes of a training step: four numbers for each parameter, and what backward needs."""
    own = {p.untyped_storage().data_ptr() for p in network.parameters()}
    stored_bytes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            stored_bytes[storage.data_ptr()] = storage.nbytes()
        return tensor

    x, labels = examples.inputs[: settings.batch], examples.labels[: settings.batch]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = settings.loss(network(x), labels)
    # Storages live as long as the graph, so no address was counted for two of them.
    del loss
    parameters = sum(p.numel() * p.element_size() for p in network.parameters())
    return 4 * parameters + sum(stored_bytes.values())


def _certify(
    network: nn.Sequential, test: Examples, radius: float
) -> tuple[float, float | None, float | None]:
    """Clean and certified accuracy and the proven constant, of the plain weights."""
    plain = plain_network(network).eval()
    try:
        certificates = certify(plain, test.inputs, "l2", test.labels)
    except NoRuleError:
        with torch.no_grad():
            predicted = torch.cat([network(x).argmax(1) for x in test.inputs.split(500)])
        return (predicted == test.labels).double().mean().item(), None, None
    clean, certified = certificates.certified_accuracy([0.0, radius]).tolist()
    return clean, certified, certificates.lipschitz.value
