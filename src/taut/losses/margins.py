r"""Margin losses: hinge, offset cross-entropy, hinge-Kantorovich-Rubinstein, ramp.

All depend on the margins of the true class $t$ over the others, $m_i = f_t - f_i$, or $m = \pm f$
for one output whose sign is the prediction. A margin above `margin_for_radius(r, ...)` is a
certificate of radius $r$.
"""

from abc import ABC, abstractmethod
from typing import get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from taut.errors import ArgumentError, check_choice, check_nonnegative, check_positive
from taut.names import LossName
from taut.norms import NormLike, as_norm

LOSSES: tuple[LossName, ...] = get_args(LossName)

# Temperature times offset. On MNIST in L2 at radius 1.58 a temperature of 2 for an offset of 2.2
# certifies most; the product has no unit, so it is what carries over to other constants and radii.
_SHARPNESS = 4.4
# A hinge stops pushing at its margin, and inputs that were not trained on fall a little short.
_BEYOND = 1.1
# A ramp gives up on inputs that fall far short, so it can ask for more of the others.
_FAR_BEYOND = 1.5


class Loss(nn.Module):
    """A loss that prints its numbers."""

    alpha: float
    margin: float
    temperature: float

    def _set_positive(self, **numbers: float) -> None:
        """Makes attributes of numbers, which must be positive."""
        for name, value in numbers.items():
            check_positive(type(self).__name__, name, value)
            setattr(self, name, float(value))

    def extra_repr(self) -> str:
        """The arguments, as torch prints them."""
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, float)}
        return ", ".join(f"{name}={value:g}" for name, value in numbers.items())


class _MarginLoss(Loss, ABC):
    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of `(n, classes)`, or `(n, 1)` for a sign, against `(n,)` class indices."""
        check_labels(type(self).__name__, logits, labels)
        return self._loss(logits, labels)

    @abstractmethod
    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor: ...


class MultiClassHinge(_MarginLoss):
    r"""The hinge loss of every margin of the true class.

    $$\operatorname{mean}_x \sum_{i \ne t} \max(0, \kappa - (f_t(x) - f_i(x)))$$

    A sum over classes, as the paper has it, where `torch.nn.MultiMarginLoss` takes the mean.

    Args:
        margin: target margin $\kappa > 0$.

    Example:
        >>> MultiClassHinge(1.0)(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """

    def __init__(self, margin: float) -> None:
        super().__init__()
        self._set_positive(margin=margin)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _hinge(logits, labels, self.margin)


class OffsetCrossEntropy(_MarginLoss):
    r"""Cross-entropy with `offset` subtracted from the logit of the true class.

    $$\operatorname{mean}_x \log\Big(1 + \sum_{i \ne t} e^{-T (f_t(x) - f_i(x) - o)}\Big)$$

    the cross-entropy of $T \cdot (f - o\,e_t)$: large for margins below the offset, small beyond it.
    A small $T$ weighs all inputs alike, a large one those that fall short.

    Args:
        offset: target margin $o \ge 0$.
        temperature: factor $T > 0$ of the logits.

    Example:
        >>> OffsetCrossEntropy(2.0)(torch.tensor([[3.0, 1.0]]), torch.tensor([0]))
        tensor(0.6931)
    """

    def __init__(self, offset: float, temperature: float = 1.0) -> None:
        super().__init__()
        check_nonnegative("OffsetCrossEntropy", "offset", offset)
        self.offset = float(offset)
        self._set_positive(temperature=temperature)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _cross_entropy(logits, labels, self.offset, self.temperature)


class HingeKR(_MarginLoss):
    r"""Hinge-Kantorovich-Rubinstein: a large transport distance between classes, and a margin.

    $$\alpha \cdot \text{hinge} \;-\; \operatorname{mean}_c
      \big(\operatorname{mean}_{x \in c} f_c(x) - \operatorname{mean}_{x \notin c} f_c(x)\big)$$

    over the classes $c$ of the batch, with the hinge of `MultiClassHinge`. For a network with
    1-Lipschitz outputs each difference of means is at most the Wasserstein-1 distance between
    that class and the rest; for one output there is one difference, between the two classes.

    Args:
        margin: target margin of the hinge, `> 0`.
        alpha: weight of the hinge, `> 0`: large for accuracy, small for robustness.

    Example:
        >>> logits, labels = torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0])
        >>> HingeKR(margin=1.0, alpha=10.0)(logits, labels)
        tensor(-2.)
    """

    def __init__(self, margin: float, alpha: float) -> None:
        super().__init__()
        self._set_positive(margin=margin, alpha=alpha)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.alpha * _hinge(logits, labels, self.margin) - _distance(logits, labels)


class RampLoss(_MarginLoss):
    r"""The ramp of the smallest margin, and some cross-entropy.

    $$\operatorname{mean}_x \min\Big(1, \max\big(0, 1 - \tfrac1\kappa \min_{i \ne t} (f_t(x) - f_i(x))\big)
      \Big) + \lambda \operatorname{CE}(T f)$$

    The ramp lies between the share of inputs without the margin $\kappa$ and that of the misclassified,
    so it is close to what certified accuracy counts, and inputs that are beyond saving cost no more
    than 1. It has no gradient there, which is what the cross-entropy is for: let its weight fall in
    the course of training.

    Args:
        margin: target margin $\kappa > 0$.
        temperature: factor $T > 0$ of the logits in the cross-entropy.
        weight: weight $\lambda \ge 0$ of the cross-entropy; an attribute that training may change.

    Example:
        >>> RampLoss(2.0, weight=0.0)(torch.tensor([[1.5, 0.5], [0.0, 9.0]]), torch.tensor([0, 0]))
        tensor(0.7500)
    """

    def __init__(self, margin: float, temperature: float = 1.0, weight: float = 0.1) -> None:
        super().__init__()
        check_nonnegative("RampLoss", "weight", weight)
        self._set_positive(margin=margin, temperature=temperature)
        self.weight = float(weight)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if _is_binary(logits):
            margin = _signed(logits, labels)
        else:
            true = labels.long()[:, None]
            margin = (logits.gather(1, true) - logits).scatter(1, true, torch.inf).amin(1)
        ramp = (1 - margin / self.margin).clamp(0, 1).mean()
        return ramp + self.weight * _cross_entropy(logits, labels, 0.0, self.temperature)


def margin_for_radius(
    radius: float, *, lipschitz: float, norm: NormLike = "l2", binary: bool = False
) -> float:
    r"""The margin above which a prediction is certified within `radius`.

    $$m > 2^{1/q} K r, \qquad 1/p + 1/q = 1$$

    that is $\sqrt 2 K r$ in L2, $2 K r$ in L-inf, $K r$ in L1; and $K r$ in all for the sign of
    one output.

    Args:
        radius: target radius $r > 0$.
        lipschitz: Lipschitz constant $K$ of the network from norm p to norm p.
        norm: norm of the radius.
        binary: whether the network has one output.

    Example:
        >>> margin_for_radius(0.1, lipschitz=1000, norm="linf")
        200.0
    """
    check_positive("margin_for_radius", "radius", radius)
    check_positive("margin_for_radius", "lipschitz", lipschitz)
    p = as_norm(norm, "margin_for_radius")
    return (1.0 if binary else 2 ** (1 - 1 / p.p)) * lipschitz * radius


def loss_for_radius(
    radius: float,
    *,
    lipschitz: float,
    norm: NormLike = "l2",
    kind: LossName = "cross_entropy",
    binary: bool = False,
    alpha: float = 10.0,
) -> nn.Module:
    r"""The loss that trains for certificates of `radius`, scaled to the network.

    With $m = $ `margin_for_radius(radius, ...)`:

    - "cross_entropy": offset $m$, temperature $4.4/m$;
    - "hinge": margin $1.1 m$;
    - "hkr": margin $1.1 m$ and weight `alpha` of the hinge;
    - "ramp": margin $1.5 m$, temperature $4.4/(1.5 m)$.

    Scaling the network, its constant or the data changes nothing but the scale. The paper
    trains for $\kappa = K r$ in L-inf, half of $m$: `MultiClassHinge(margin)` takes any margin.

    Example:
        >>> loss_for_radius(1.58, lipschitz=1.0)
        OffsetCrossEntropy(offset=2.23446, temperature=1.96916)
        >>> loss_for_radius(0.1, lipschitz=1000.0, norm="linf", kind="hinge")
        MultiClassHinge(margin=220)
    """
    check_choice("loss_for_radius", "kind", kind, LOSSES)
    margin = margin_for_radius(radius, lipschitz=lipschitz, norm=norm, binary=binary)
    if kind == "hinge":
        return MultiClassHinge(_BEYOND * margin)
    if kind == "hkr":
        return HingeKR(_BEYOND * margin, alpha)
    if kind == "ramp":
        return RampLoss(_FAR_BEYOND * margin, _SHARPNESS / (_FAR_BEYOND * margin))
    return OffsetCrossEntropy(margin, _SHARPNESS / margin)


def check_labels(subject: str, logits: Tensor, labels: Tensor) -> None:
    """Raises unless `labels` are class indices, one for each row of `logits`."""
    if logits.dim() not in (1, 2) or logits.shape[0] == 0 or logits.numel() == 0:
        rule = "must be (n, classes), or (n, 1) for a sign"
        raise ArgumentError(subject, "logits", rule, f"shape {tuple(logits.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.shape != logits.shape[:1]:
        rule = "must be one class index for each row of logits"
        got = f"{labels.dtype} of shape {tuple(labels.shape)} for logits {tuple(logits.shape)}"
        remedy = "Use labels.long(), and argmax(1) for one-hot rows."
        raise ArgumentError(subject, "labels", rule, got, remedy)
    if torch.compiler.is_compiling():
        return
    classes = 2 if _is_binary(logits) else logits.shape[1]
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= classes:
        wrong = lowest if lowest < 0 else highest
        rule = f"must lie in 0..{classes - 1} for {classes} classes"
        remedy = "Use 0 and 1 for one output." if _is_binary(logits) else "Number classes from 0."
        raise ArgumentError(subject, "labels", rule, str(wrong), remedy)


def _is_binary(logits: Tensor) -> bool:
    return logits.dim() == 1 or logits.shape[1] == 1


def _signed(logits: Tensor, labels: Tensor) -> Tensor:
    """The margin of the true sign, `(n,)`."""
    return logits.flatten() * (2 * labels.to(logits.dtype) - 1)


def _cross_entropy(logits: Tensor, labels: Tensor, offset: float, temperature: float) -> Tensor:
    if _is_binary(logits):
        return F.softplus(temperature * (offset - _signed(logits, labels))).mean()
    put_back = F.one_hot(labels.long(), logits.shape[1]).to(logits.dtype) * offset
    return F.cross_entropy(temperature * (logits - put_back), labels.long())


def _hinge(logits: Tensor, labels: Tensor, margin: float) -> Tensor:
    if _is_binary(logits):
        return (margin - _signed(logits, labels)).relu().mean()
    true = labels.long()[:, None]
    missing = (margin - logits.gather(1, true) + logits).relu()
    return missing.scatter(1, true, 0.0).sum(1).mean()


def _distance(logits: Tensor, labels: Tensor) -> Tensor:
    """The difference of means inside and outside each class, averaged over the classes seen."""
    if _is_binary(logits):
        logits, inside = logits.flatten()[:, None], labels[:, None].to(logits.dtype)
    else:
        inside = F.one_hot(labels.long(), logits.shape[1]).to(logits.dtype)
    count, others = inside.sum(0), (1 - inside).sum(0)
    mean = (logits * inside).sum(0) / count.clamp(min=1)
    apart = mean - (logits * (1 - inside)).sum(0) / others.clamp(min=1)
    # A class that fills the batch, or is not in it, has no distance to the rest.
    known = (count > 0) & (others > 0)
    return (apart * known).sum() / known.sum().clamp(min=1)
