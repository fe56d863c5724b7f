"""What attacks lower: the lead of the true class, or its likelihood."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["OBJECTIVES", "lead", "predict"]

# Beyond this lead of the wrong class the loss of Carlini and Wagner is flat.
_CONFIDENCE = 50.0


def predict(logits: Tensor) -> Tensor:
    """The classes `(n,)` of `(n, classes)`; of one output 1 if it is positive, else 0."""
    if logits.dim() == 1 or logits.shape[1] == 1:
        return (logits.flatten() > 0).long()
    return logits.argmax(1)


def lead(logits: Tensor, labels: Tensor) -> Tensor:
    """By how much the true class leads the best other, `(n,)`; negative where it does not."""
    if logits.dim() == 1 or logits.shape[1] == 1:
        return torch.where(labels == 1, logits.flatten(), -logits.flatten())
    true = labels[:, None]
    others = logits.scatter(1, true, -torch.inf)
    return logits.gather(1, true)[:, 0] - others.amax(1)


def _carlini_wagner(logits: Tensor, labels: Tensor) -> Tensor:
    r"""$f_6$ of Carlini and Wagner, $\max(0, z_t - \max_{i \ne t} z_i + 50)$."""
    return (lead(logits, labels) + _CONFIDENCE).relu()


def _likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the likelihood of the true class."""
    if logits.dim() == 1 or logits.shape[1] == 1:
        return F.logsigmoid(lead(logits, labels))
    return -F.cross_entropy(logits, labels, reduction="none")


# Each gives one number a sample, to be made small.
OBJECTIVES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cw": _carlini_wagner,
    "cross_entropy": _likelihood,
}
