r"""Losses of distances between classes: Kantorovich-Rubinstein alone, and with hinges.

Targets, `reduction` and `class_weight` are those of `taut.losses.scores`.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import check_within
from taut.losses.scores import ScoreLoss, hinges, mean_of_classes, signed


def _transport(logits: Tensor, inside: Tensor, weight: Tensor) -> Tensor:
    r"""Shares $t_{ic}$ of the samples in the differences of means of each class, times $\sum w$.

    Their sum over the samples, divided by the sum of weights, is
    $\operatorname{mean}_{x \in c} f_c - \operatorname{mean}_{x \notin c} f_c$; 0 for a class that fills
    the batch or is not in it.
    """
    rows = weight[:, None]
    here, there = (rows * inside).sum(0), (rows * ~inside).sum(0)
    known = (here > 0) & (there > 0)
    part = torch.where(inside, here, -there)
    share = torch.where(known, rows * weight.sum() / torch.where(known, part, 1.0), 0.0)
    return share * logits


class KR(ScoreLoss):
    r"""The Kantorovich-Rubinstein loss: minus the difference of means inside and outside a class.

    $$-\sum_c w_c \big(\operatorname{mean}_{x \in c} f_c(x) - \operatorname{mean}_{x \notin c} f_c(x)\big)
      / \textstyle\sum_c w_c$$

    over all classes, one against the rest; for one output there is one difference, between the two
    classes. For 1-Lipschitz outputs each difference is at most the Wasserstein-1 distance between the
    class and the rest. A class that is not in the batch counts as 0.

    Args:
        reduction: "mean" for the loss itself, "sum" for it times the sum of sample weights, "none" for
            the shares of the samples.
        class_weight: the weights $w_c$.

    Example:
        >>> KR()(torch.tensor([[1.0], [-1.0], [-3.0]]), torch.tensor([1, 0, 0]))
        tensor(-3.)
    """

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        return -mean_of_classes(_transport(logits, inside, weight), columns)


class HKR(ScoreLoss):
    r"""Hinge and Kantorovich-Rubinstein with the usual weight: $\alpha\,h + (1 - \alpha)\,k$.

    The hinge $h$ is `OneVsRestHinge`, and $k$ is `KR`, the negative difference of means.
    `taut.losses.HingeKR` weighs the hinge of all leads by a factor instead.

    Args:
        alpha: in [0, 1]: 0 for the distance alone, near 1 for accuracy.
        margin: target margin of the hinge.

    Example:
        >>> HKR(alpha=0.9)(torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 0]))
        tensor(-0.2000)
    """

    def __init__(
        self,
        alpha: float,
        margin: float = 1.0,
        reduction: str = "mean",
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, class_weight)
        self._set_positive(margin=margin)
        remedy = "Use taut.losses.HingeKR for a factor of the hinge."
        check_within(type(self).__name__, "alpha", alpha, "[0, 1]", remedy)
        self.alpha = float(alpha)

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        distance = mean_of_classes(_transport(logits, inside, weight), columns)
        hinge = weight * self._hinge(logits, inside, columns)
        return self.alpha * hinge - (1 - self.alpha) * distance

    def _hinge(self, logits: Tensor, inside: Tensor, columns: Tensor) -> Tensor:
        return mean_of_classes(hinges(logits, inside, self.margin), columns)


class _TemperedHKR(HKR):
    """`HKR` with another hinge, sharper the larger its temperature."""

    def __init__(
        self,
        alpha: float,
        margin: float = 1.0,
        temperature: float = 10.0,
        reduction: str = "mean",
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__(alpha, margin, reduction, class_weight)
        self._set_positive(temperature=temperature)


class SoftHKR(_TemperedHKR):
    r"""`HKR` whose hinge attends to the other classes by their scores.

    The hinges of the true classes are averaged, and those of the others weighted by
    $\mathrm{softmax}(T f)$ over the others, taken as a constant: with many classes the plain mean is
    ruled by classes that nobody confuses. One output has the plain hinge.

    Args:
        alpha, margin: those of `HKR`.
        temperature: factor $T$ of the scores; the largest other class alone for large ones.

    Example:
        >>> SoftHKR(1.0, temperature=100.0)(torch.tensor([[2.0, 0.5, -9.0]]), torch.tensor([0]))
        tensor(0.7500)
    """

    def _hinge(self, logits: Tensor, inside: Tensor, columns: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            return super()._hinge(logits, inside, columns)
        missing = hinges(logits, inside, self.margin) * columns
        sharp = self.temperature * logits.detach()
        # With no other class, or no true one, that half is 0.
        others = sharp.masked_fill(inside, -math.inf).softmax(1).nan_to_num(0.0)
        true = inside.to(logits) / inside.sum(1, keepdim=True).clamp(min=1)
        return ((others + true) * missing).sum(1) / 2


class LseHKR(_TemperedHKR):
    r"""`HKR` with a smooth hinge of the smallest lead, by a log-sum-exp over the other classes.

    $$\frac1T \log\Big(1 + \sum_{i \ne t} e^{T (\kappa - (f_t - f_i))}\Big)$$

    which is above the hinge of the smallest lead by at most $\log(C) / T$ for $C$ classes. The lead
    of several true classes is that of the lowest; one output has the lead of its sign, twice its
    score, against $2 \kappa$, and half of that loss.

    Args:
        alpha, margin: those of `HKR`.
        temperature: factor $T$ of the leads.
        class_weight: weights of the distances.

    Example:
        >>> LseHKR(1.0, temperature=100.0)(torch.tensor([[2.0, 1.5, -9.0]]), torch.tensor([0]))
        tensor(0.5000)
    """

    def _hinge(self, logits: Tensor, inside: Tensor, columns: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            missing = self.margin - signed(logits, inside)[:, 0]
            return F.softplus(2 * self.temperature * missing) / (2 * self.temperature)
        some = inside.any(1)
        lowest = torch.where(some, logits.masked_fill(~inside, math.inf).amin(1), 0.0)
        short = self.margin - (lowest[:, None] - logits)
        terms = (self.temperature * short).masked_fill(inside | ~some[:, None], -math.inf)
        nothing = torch.zeros_like(terms[:, :1])
        return torch.cat([nothing, terms], 1).logsumexp(1) / self.temperature
