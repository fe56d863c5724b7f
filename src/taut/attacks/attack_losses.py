"""The objectives of attacks: the margin of the true class, or its likelihood."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

AttackLoss = Literal["cw", "cross_entropy"]

# Beyond this margin of the wrong class the loss of Carlini and Wagner is flat.
_CONFIDENCE = 50.0


def predict(logits: Tensor) -> Tensor:
    """The classes `(n,)` of `(n, classes)`; of one output 1 if it is positive, else 0."""
    if logits.dim() == 1 or logits.shape[1] == 1:
        return (logits.flatten() > 0).long()
    return logits.argmax(1)


def margins(logits: Tensor, labels: Tensor, targets: Tensor | None = None) -> Tensor:
    """The margin of the true class over the target, or over the best other class, `(n,)`."""
    if logits.dim() == 1 or logits.shape[1] == 1:
        return torch.where(labels == 1, logits.flatten(), -logits.flatten())
    true = labels[:, None]
    if targets is None:
        rival = logits.scatter(1, true, -torch.inf).amax(1)
    else:
        rival = logits.gather(1, targets[:, None])[:, 0]
    return logits.gather(1, true)[:, 0] - rival


def rivals(logits: Tensor, labels: Tensor, rank: int) -> Tensor | None:
    """The class of rank `rank` among the others, 0 the best, cyclically; None for one output."""
    if logits.dim() == 1 or logits.shape[1] <= 2:
        return None
    others = logits.scatter(1, labels[:, None], -torch.inf).argsort(1, descending=True)
    return others[:, rank % (logits.shape[1] - 1)]


def _carlini_wagner(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    r"""$f_6$ of Carlini and Wagner, $\max(0, z_t - \max_{i \ne t} z_i + 50)$."""
    return (margins(logits, labels, targets) + _CONFIDENCE).relu()


def _likelihood(logits: Tensor, labels: Tensor, targets: Tensor | None) -> Tensor:
    """The logarithm of the likelihood of the true class, among all or against the target alone."""
    if targets is not None or logits.dim() == 1 or logits.shape[1] == 1:
        return F.logsigmoid(margins(logits, labels, targets))
    return -F.cross_entropy(logits, labels, reduction="none")


# Each gives one number per sample, to be minimised.
OBJECTIVES: dict[AttackLoss, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "cw": _carlini_wagner,
    "cross_entropy": _likelihood,
}
