"""Monitor files: the fitted reference, the evidence so far, and the state after each batch."""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch

from taut.data import Encoding
from taut.errors import DamagedFileError
from taut.export import open_file, save
from taut.nn import ConeCritic
from taut.transport.drift_evidence import new_wealth
from taut.transport.drift_scores import DriftScores
from taut.transport.feature_scaling import SCALINGS, FeatureScaling
from taut.transport.monitor import Change, Monitor, MonitoredBatch

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

_SCORES = ("axes", "middles", "low", "high")
_STATE = ("nodes", "reference", "means", "wealth")
_STATED = ("false_alarm_rate", "tolerance", "rows", "rounding", "moves", "start")


def save_monitor(monitor: Monitor, path: str | os.PathLike[str]) -> None:
    """Writes a monitor to one file in the format of `taut.save`; an older one is replaced at once.

    The network in it is the distance from the reference; `taut.load` reads it alone.
    """
    tensors = {name: getattr(monitor.scores, name) for name in _SCORES}
    tensors |= {name: getattr(monitor, name) for name in (*_STATE, "recent")}
    tensors |= {"shift": monitor.scaling.shift, "scale": monitor.scaling.scale}
    for name in ("axes", "recent"):
        # A tensor without entries cannot be stored.
        tensors[name] = torch.cat([tensors[name], torch.zeros(1, monitor.dim).double()])
    stated = {name: getattr(monitor, name) for name in _STATED}
    stated |= {
        "scaling": monitor.scaling.method,
        "columns": None if monitor.columns is None else list(monitor.columns),
        "encoding": None if monitor.encoding is None else monitor.encoding.to_json(),
        "batches": [asdict(batch) for batch in monitor.batches],
        "window": monitor.window,
    }
    stored: Any = {"metadata": {"monitor": stated}, "extra_tensors": tensors}
    save(monitor.scores.critic, path, norm="l2", input_shape=[monitor.dim], **stored)


@contextlib.contextmanager
def hold_monitor(path: str | os.PathLike[str]) -> Iterator[None]:
    """Locks a monitor's file from reading to writing, so that no batch of another process is lost.

    Waits for a process that holds it. The lock is a file beside it, `PATH.lock`, which stays: another
    process may have opened it. The system releases it when the process ends, however.
    """
    with open(f"{os.fspath(path)}.lock", "a") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def load_monitor(path: str | os.PathLike[str]) -> Monitor:
    """Reads what `save_monitor` wrote.

    Raises:
        DamagedFileError: the file is truncated, altered, or holds no monitor.

    Example:
        >>> import tempfile, pathlib
        >>> from taut.transport import fit_monitor
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "watch.safetensors"
        >>> save_monitor(fit_monitor(torch.linspace(0, 1, 50)), path)
        >>> load_monitor(path).rows
        50
    """
    file = open_file(path)
    try:
        return _read(file.model, file.metadata["monitor"], file.extra_tensors)
    except (LookupError, TypeError, ValueError) as error:
        rule, got = "must hold a monitor", "no monitor, or an incomplete one"
        remedy = "Write it with taut.transport.save_monitor, or taut watch --save."
        raise DamagedFileError(
            f"load_monitor: {os.path.basename(os.fspath(path))}", rule=rule, got=got, remedy=remedy
        ) from error


def _read(critic: Any, stated: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Monitor:
    parts = {name: tensors[name] for name in (*_SCORES, *_STATE, "shift", "scale", "recent")}
    parts |= {name: parts[name][:-1] for name in ("axes", "recent")}
    columns, encoding = stated["columns"], stated["encoding"]
    dim, scores, nodes = len(parts["shift"]), len(parts["low"]), parts["nodes"]
    numbers = [float(stated[name]) for name in _STATED]
    for fits in (
        isinstance(critic, ConeCritic) and critic.dim == dim,
        parts["scale"].shape == (dim,) and bool((parts["scale"] > 0).all()),
        parts["axes"].shape[1] == parts["recent"].shape[1] == dim,
        stated["window"] is None or (type(stated["window"]) is int and stated["window"] > 0),
        parts["middles"].shape == (dim + len(parts["axes"]),),
        parts["high"].shape == (scores,) and bool((parts["high"] > parts["low"]).all()),
        nodes.ndim == 2 and len(nodes) == 2 * scores and bool((nodes > 0).all()),
        parts["reference"].shape == nodes.shape,
        parts["means"].shape == (2 * scores,),
        parts["wealth"].shape == new_wealth(nodes).shape,
        all(tensor.dtype == torch.float64 for tensor in parts.values()),
        stated["scaling"] in SCALINGS,
        columns is None or (len(columns) == dim and all(type(c) is str for c in columns)),
        all(math.isfinite(number) and number >= 0 for number in numbers),
        0 < numbers[0] < 1,
    ):
        if not fits:
            raise ValueError("a part does not fit the others")
    monitor = Monitor(
        scores=DriftScores(critic, *(parts[name] for name in _SCORES)),
        scaling=FeatureScaling(stated["scaling"], parts["shift"], parts["scale"]),
        columns=None if columns is None else tuple(columns),
        encoding=None if encoding is None else Encoding.from_json(encoding),
        batches=[
            MonitoredBatch(**batch | {"changes": tuple(Change(**c) for c in batch["changes"])})
            for batch in stated["batches"]
        ],
        window=stated["window"],
        recent=parts["recent"],
        **{name: parts[name] for name in _STATE},
        **{name: stated[name] for name in _STATED},
    )
    if len(monitor.scores(torch.zeros(1, dim).double()).T) != 2 * scores:
        raise ValueError("the scores are others")
    return monitor
