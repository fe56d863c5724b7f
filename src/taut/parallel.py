"""Data-parallel work in the processes that `torchrun` starts.

Each process computes its share, and all hold the same numbers afterwards. Without `torchrun` there is
one process, whose share is everything, and nothing here communicates: the same code serves both.
"""

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from taut.errors import ArgumentError

__all__ = [
    "average_gradients",
    "gather",
    "is_first",
    "process_group",
    "rank",
    "share",
    "share_weight",
    "world_size",
]

_FAREWELL_SECONDS = 0.5
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Index of this process; 0 where it is the only one."""
    return dist.get_rank() if _together() else 0


def world_size() -> int:
    """Number of processes; 1 where this is the only one."""
    return dist.get_world_size() if _together() else 1


def is_first() -> bool:
    """Whether this process is the one that prints and writes files."""
    return rank() == 0


@contextmanager
def process_group(timeout: timedelta = timedelta(minutes=30)) -> Iterator[None]:
    """Joins the process group of `torchrun`, and leaves it at the end.

    Tensors on the CPU travel by gloo, those on GPUs by nccl. Without the environment variables that
    `torchrun` sets, or inside another group, this does nothing.

    Args:
        timeout: time limit of waiting for the slowest process.

    Example:
        >>> with process_group():
        ...     rank(), world_size()
        (0, 1)
    """
    if _together() or not all(name in os.environ for name in _VARIABLES):
        yield
        return
    backend = "gloo"
    if torch.cuda.is_available() and dist.is_nccl_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, timeout=timeout)
    try:
        yield
    finally:
        dist.destroy_process_group()
        # Threads of gloo drop their last messages a little later, and need the interpreter for that;
        # one that is torn down meanwhile aborts the process.
        time.sleep(_FAREWELL_SECONDS)


def share(batch: Tensor) -> Tensor:
    """The rows of a batch that this process computes: consecutive, and nearly as many for each.

    The shares of all processes, one after the other, are the batch: `gather(f(share(batch)))` is
    `f(batch)` for any `f` that takes rows one by one.

    Args:
        batch: `(n, ...)`, the same in every process, with at least one row for each.

    Example:
        >>> share(torch.arange(4))
        tensor([0, 1, 2, 3])
    """
    if len(batch) < world_size():
        rule = f"must have a row for each of the {world_size()} processes"
        got = f"{len(batch)} rows"
        raise ArgumentError("share", "batch", rule, got, "Use larger batches, or fewer processes.")
    return batch.tensor_split(world_size())[rank()]


def share_weight(num_rows: int) -> float:
    """The factor by which means over shares of `num_rows` rows average to the mean over all of them.

    It is 1 where shares are equal, and `len(share) * world_size() / num_rows` in general.
    """
    least, rest = divmod(num_rows, world_size())
    return (least + (rank() < rest)) * world_size() / num_rows


@torch.no_grad()
def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replaces every gradient by its mean over the processes.

    With losses that are means over shares, times `share_weight`, this is the gradient of the mean
    over the batch, up to rounding; and it is the same, bit by bit, in every process. A gradient
    that only some processes have counts as zero in the others.

    Args:
        parameters: the same, in the same order, in every process.
    """
    if world_size() == 1:
        return
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            groups.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    for group in groups.values():
        # One message: all gradients, then a mark for each that says whether it is there.
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in group]
        marks = parts[0].new_tensor([p.grad is not None for p in group])
        buffer = torch.cat([*(part.flatten() for part in parts), marks])
        dist.all_reduce(buffer)
        buffer /= world_size()
        sizes = [part.numel() for part in parts]
        *means, marks = buffer.split([*sizes, len(group)])
        for parameter, mean, mark in zip(group, means, marks.tolist(), strict=True):
            parameter.grad = mean.view_as(parameter).clone() if mark > 0 else None


def gather(part: Tensor) -> Tensor:
    """The parts of all processes, one after the other along the first dimension.

    Args:
        part: `(n, ...)`; `n` may differ between processes, and may be 0.

    Returns:
        The same tensor in every process.

    Example:
        >>> gather(torch.arange(3))
        tensor([0, 1, 2])
    """
    if world_size() == 1:
        return part
    length = torch.tensor(len(part), device=part.device)
    lengths = [torch.zeros_like(length) for _ in range(world_size())]
    dist.all_gather(lengths, length)
    longest = max(int(one) for one in lengths)
    # Messages must be of one size: shorter parts are filled up, and cut again after.
    filled = part.new_zeros(longest, *part.shape[1:])
    filled[: len(part)] = part
    parts = [torch.empty_like(filled) for _ in range(world_size())]
    dist.all_gather(parts, filled)
    return torch.cat([one[: int(n)] for one, n in zip(parts, lengths, strict=True)])
