r"""Losses of scores, one by one or by the lead of the true classes.

Targets are class indices `(n,)`, or one row of 0 and 1 for each sample, `(n, classes)`, where several
classes may be true: losses of one class against the rest, and those of leads, take several labels. One
output is a sign: class 1 above 0. With $y_{ic} = \pm 1$ for true and other classes, a *signed score* is
$y_{ic} f_c(x_i)$. All take `reduction` ("mean", "sum" or "none" over the samples) and `class_weight`,
`(classes,)`, by default all alike.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from taut.errors import ArgumentError, check_choice, check_nonnegative
from taut.losses.margins import Loss, check_labels

_REDUCTIONS = ("mean", "sum", "none")


class ScoreLoss(Loss):
    """A loss of `(n, classes)` scores with weights of samples and classes, reduced as asked."""

    class_weight: Tensor | None

    def __init__(self, reduction: str = "mean", class_weight: Tensor | None = None) -> None:
        super().__init__()
        check_choice(type(self).__name__, "reduction", reduction, _REDUCTIONS)
        self.reduction = reduction
        self.register_buffer("class_weight", class_weight, persistent=False)

    def forward(
        self, logits: Tensor, targets: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """The loss of `(n, classes)`, or `(n, 1)` for a sign, against class indices or 0-1 rows.

        Args:
            logits: scores.
            targets: `(n,)` class indices, or `(n, classes)` rows of 0 and 1.
            sample_weight: `(n,)`, non-negative; a sample of weight 2 counts twice.

        Returns:
            A number, or `(n,)` for `reduction="none"`. The mean is over the weights of the samples.
        """
        name = type(self).__name__
        logits = logits[:, None] if logits.dim() == 1 else logits
        inside = _true_classes(name, logits, targets)
        weight = logits.new_ones(len(logits)) if sample_weight is None else sample_weight
        if weight.shape != logits.shape[:1]:
            rule = "must be one number for each row of logits"
            got = f"shape {tuple(weight.shape)} for logits {tuple(logits.shape)}"
            raise ArgumentError(name, "sample_weight", rule, got)
        columns = logits.new_ones(logits.shape[1])
        if self.class_weight is not None:
            if self.class_weight.shape != columns.shape:
                got = f"shape {tuple(self.class_weight.shape)} for {len(columns)} classes"
                raise ArgumentError(name, "class_weight", "must be one number for each class", got)
            columns = self.class_weight.to(logits)
        losses = self._losses(logits, inside, weight.to(logits), columns)
        if self.reduction == "none":
            return losses
        return losses.sum() if self.reduction == "sum" else losses.sum() / weight.sum()

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        """`(n,)`, each times the weight of its sample; `inside` is True for true classes."""
        raise NotImplementedError


def _true_classes(subject: str, logits: Tensor, targets: Tensor) -> Tensor:
    """`(n, classes)`: whether a class is true of a sample."""
    if targets.dim() == 2 and targets.shape == logits.shape:
        if not torch.compiler.is_compiling() and bool(((targets != 0) & (targets != 1)).any()):
            rule = "must be 0 or 1 in each row, or class indices"
            got = f"{targets.dtype} between {float(targets.min()):g} and {float(targets.max()):g}"
            raise ArgumentError(subject, "targets", rule, got)
        return targets == 1
    check_labels(subject, logits, targets)
    if logits.shape[1] == 1:
        return targets[:, None] == 1
    return F.one_hot(targets.long(), logits.shape[1]) == 1


def signed(logits: Tensor, inside: Tensor) -> Tensor:
    """Scores of true classes, and minus those of the others."""
    return torch.where(inside, logits, -logits)


def hinges(logits: Tensor, inside: Tensor, margin: float) -> Tensor:
    """What each signed score falls short of the margin by."""
    return (margin - signed(logits, inside)).relu()


def mean_of_classes(each: Tensor, columns: Tensor) -> Tensor:
    """The mean over the classes with their weights."""
    return each @ columns / columns.sum()


class OneVsRestHinge(ScoreLoss):
    r"""The hinge of each score on its own: $\sum_c w_c \max(0, \kappa - y_c f_c) / \sum_c w_c$.

    Args:
        margin: target margin $\kappa > 0$.
        class_weight: the weights $w_c$.

    Example:
        >>> OneVsRestHinge(1.0)(torch.tensor([[0.5, 0.0]]), torch.tensor([0]))
        tensor(0.7500)
    """

    def __init__(
        self, margin: float = 1.0, reduction: str = "mean", class_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction, class_weight)
        self._set_positive(margin=margin)

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        return weight * mean_of_classes(hinges(logits, inside, self.margin), columns)


class CategoricalHinge(OneVsRestHinge):
    r"""The hinge of the smallest lead: $\max(0, \kappa - (\min_{\text{true}} f - \max_{\text{other}} f))$.

    With one true class it is the hinge of the margin that certificates rest on, times the weight of
    that class. One output has the hinge of its sign.

    Args:
        margin: target margin $\kappa > 0$.
        class_weight: a sample counts as much as the mean of its true classes does.

    Example:
        >>> CategoricalHinge(1.0)(torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([0]))
        tensor(0.5000)
    """

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            lead = signed(logits, inside)[:, 0]
            return weight * columns[0] * (self.margin - lead).relu()
        lowest = logits.masked_fill(~inside, math.inf).amin(1)
        highest = logits.masked_fill(inside, -math.inf).amax(1)
        # Where all classes are true, or none, there is no lead to fall short of.
        some = inside.any(1) & (~inside).any(1)
        lead = torch.where(some, lowest, self.margin) - torch.where(some, highest, 0.0)
        counted = inside.sum(1).clamp(min=1)
        return weight * (inside.to(logits) @ columns / counted) * (self.margin - lead).relu()


class TemperatureBCE(ScoreLoss):
    r"""Binary cross-entropy of each score, one against the rest: $\log(1 + e^{-T y_c f_c}) / T$, averaged.

    The scores of a 1-Lipschitz network are small; the temperature decides how sharp their
    probabilities are. Divided by $T$, so that gradients keep their size.

    Args:
        temperature: factor $T$ of the scores.

    Example:
        >>> TemperatureBCE(1.0)(torch.tensor([[0.0]]), torch.tensor([1]))
        tensor(0.6931)
    """

    def __init__(
        self, temperature: float = 1.0, reduction: str = "mean", class_weight: Tensor | None = None
    ) -> None:
        super().__init__(reduction, class_weight)
        self._set_positive(temperature=temperature)

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        each = F.softplus(-self.temperature * signed(logits, inside)) / self.temperature
        return weight * mean_of_classes(each, columns)


class CosineLoss(ScoreLoss):
    r"""Minus the cosine between scores and targets: $-\cos(f, y)$, $y$ the 0-1 row of the true classes.

    It does not know how large the scores are. One output has minus its sign, softened nowhere: give
    two outputs. A row of zeros has loss 0.

    Args:
        class_weight: factors of the target.

    Example:
        >>> CosineLoss()(torch.tensor([[3.0, 4.0]]), torch.tensor([1]))
        tensor(-0.8000)
    """

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            rule = "must have two classes at least, for the cosine of one number is its sign"
            raise ArgumentError("CosineLoss", "logits", rule, f"shape {tuple(logits.shape)}")
        return -weight * F.cosine_similarity(logits, inside.to(logits) * columns, dim=1)


class AnnealedCrossEntropy(ScoreLoss):
    r"""Cross-entropy behind a margin that each sample has all but reached (EMMA, logit annealing).

    To each other logit a constant is added, $\min(1, \max(0.01, g_j / (\epsilon s)))\,\epsilon s$ with
    the gap $g_j = f_t - f_j$, taken without derivative, and $s = \sqrt2 K$, how much the gap of two
    classes may change for each unit that the input moves. A sample that is certified for a part of the
    radius $\epsilon$ is asked for that much, no more, so the hardest ones do not rule the loss. Then
    follows the cross-entropy with offset, temperature and focus:

    $$(1 - p_t)^\gamma \cdot \operatorname{CE}\big(T (f + a - o\,e_t)\big)$$

    Args:
        radius: target radius $\epsilon > 0$ in L2.
        lipschitz: Lipschitz constant $K$ of the network in L2.
        offset: $o \ge 0$.
        temperature: factor $T > 0$ of the logits.
        focus: exponent $\gamma \ge 0$ of the focal factor; 0 for none.
        class_weight: weights of the true classes.

    Example:
        >>> loss = AnnealedCrossEntropy(1.0, lipschitz=1.0, offset=0.0)
        >>> bool(loss(torch.tensor([[9.0, 0.0]]), torch.tensor([0])) > 0)
        True
    """

    radius: float
    lipschitz: float

    def __init__(
        self,
        radius: float,
        lipschitz: float = 1.0,
        offset: float = 0.0,
        temperature: float = 1.0,
        focus: float = 0.0,
        reduction: str = "mean",
        class_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction, class_weight)
        self._set_positive(radius=radius, lipschitz=lipschitz, temperature=temperature)
        check_nonnegative("AnnealedCrossEntropy", "offset", offset)
        check_nonnegative("AnnealedCrossEntropy", "focus", focus)
        self.offset, self.focus = float(offset), float(focus)

    def _losses(self, logits: Tensor, inside: Tensor, weight: Tensor, columns: Tensor) -> Tensor:
        if logits.shape[1] == 1:
            # The gap between a score and its negative, of which each is half.
            logits = torch.cat([-logits, logits], 1) / 2**0.5
            inside, columns = torch.cat([~inside, inside], 1), columns.repeat(2)
        if not torch.compiler.is_compiling() and bool((inside.sum(1) != 1).any()):
            rule, got = "must name one true class for each sample", "rows with none or several"
            remedy = "Use TemperatureBCE or OneVsRestHinge for several."
            raise ArgumentError("AnnealedCrossEntropy", "targets", rule, got, remedy)
        labels = inside.to(torch.uint8).argmax(1)
        fixed = logits.detach()
        reach = 2**0.5 * self.lipschitz * self.radius
        gaps = fixed.gather(1, labels[:, None]) - fixed
        annealed = (gaps / reach).clamp(0.01, 1) * reach
        shifted = logits + torch.where(inside, -self.offset, annealed)
        losses = F.cross_entropy(self.temperature * shifted, labels, reduction="none")
        focal = (-torch.expm1(-losses)).clamp(min=0) ** self.focus if self.focus else 1.0
        return weight * columns[labels] * focal * losses
