r"""Networks that train in convenient units and are proven in the user's.

Data far from the origin or of odd size train badly, so a network $g$ is trained on
$u = (x - c)/s$, with one centre $c$ and one length $s$ for all features. The network that is kept,

$$f(x) = b + K s\, g\big((x - c)/s\big),$$

has constant $K$ in the units of $x$ whenever $g$ has constant 1: shift and scale cancel, which no
scaling of single features would. The shift goes into the first bias and $b$ into the last, so $f$
is a plain sequence of constrained layers, which `taut.certify` can prove.
"""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.nn import ConstrainedLinear, Scale, mlp
from taut.norms import as_norm
from taut.training.fit import fit

__all__ = ["View", "check_size", "make_network", "train_network", "view_of"]

_CONSTRAINTS = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}


@dataclass(frozen=True)
class View:
    """The centre and the length through which a network sees data."""

    centre: Tensor
    length: float

    def __call__(self, rows: np.ndarray) -> Tensor:
        """Rows as the network in training takes them; float32."""
        return ((torch.tensor(rows) - self.centre) / self.length).float()

    def proven_network(
        self, trained: nn.Sequential, lipschitz: float, offset: float = 0.0
    ) -> nn.Sequential:
        r"""$f(x) = b + K s\, g((x - c)/s)$ as one network in float64, evaluating.

        Args:
            trained: $g$, of constrained layers and activations.
            lipschitz: $K$.
            offset: $b$.
        """
        layers = trained.double().eval()
        first, last = layers[0], layers[-1]
        assert isinstance(first, ConstrainedLinear) and isinstance(last, ConstrainedLinear)
        assert first.bias is not None and last.bias is not None
        with torch.no_grad():
            first.bias.sub_(first.evaluation_weight() @ (self.centre / self.length))
            last.bias.add_(offset / (lipschitz * self.length))
        return nn.Sequential(Scale(1 / self.length), *layers, Scale(lipschitz * self.length)).eval()


def view_of(rows: np.ndarray, norm: str, subject: str = "view_of") -> View:
    """The mean of the rows, and their typical distance to it.

    A power of two, so that multiplying by it rounds nothing and the constant is kept to the bit.
    """
    points = torch.tensor(rows)
    centre = points.mean(0)
    length = as_norm(norm).vector(points - centre).mean().item()
    if length > 0:
        check_size(subject, "X", length, 150)
    return View(centre, 2.0 ** round(math.log2(length)) if length > 0 else 1.0)


def check_size(subject: str, argument: str, size: float, digits: int) -> None:
    """Raises unless what is typical of an argument lies within so many powers of ten of 1."""
    if not 10.0**-digits <= size <= 10.0**digits:
        raise ArgumentError(
            f"{subject}: `{argument}` must spread by something between 1e-{digits} and 1e{digits}, "
            f"or its squares leave the range of floats; got {size:.3g}. Choose other units, or "
            "standardise first, as StandardScaler does."
        )


def make_network(
    subject: str, inputs: int, hidden: Any, outputs: int, activation: str, norm: str, seed: int
) -> nn.Sequential:
    """A network of constant 1 in `norm`, its weights drawn from `seed`."""
    check_choice(subject, "norm", norm, tuple(_CONSTRAINTS))
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise ArgumentError(
            f"{subject}: `hidden_sizes` must be a sequence of whole numbers, one for each hidden "
            f"layer; got hidden_sizes={hidden!r}. Write (64,) or (64, 64)."
        )
    widths = tuple(hidden)
    for width in widths:
        check_count(subject, "hidden_sizes", width)
    if not isinstance(activation, str):
        raise ArgumentError(
            f"{subject}: `activation` must be a name that taut.nn.mlp knows, so that the estimator "
            f"can be stored; got activation={activation!r}."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return mlp([inputs, *map(int, widths), outputs], activation, _CONSTRAINTS[norm])
        except ArgumentError as error:
            raise ArgumentError(
                f"{subject}: `hidden_sizes` and `activation` must make a network; got hidden_sizes="
                f"{widths}, activation={activation!r}. {error}"
            ) from error


def train_network(
    estimator: Any,
    network: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    seed: int,
) -> tuple[float, ...]:
    """`taut.training.fit` with the parameters of an estimator; the mean loss of each epoch."""
    name = type(estimator).__name__
    for count in ("epochs", "batch_size", "patience"):
        check_count(name, count, getattr(estimator, count))
    check_positive(name, "lr", estimator.lr)
    share = estimator.validation_fraction
    if not 0 <= share < 1:
        raise ArgumentError(
            f"{name}: `validation_fraction` must be at least 0 and below 1; "
            f"got validation_fraction={share!r}."
        )
    held_out = min(math.ceil(share * len(inputs)), len(inputs) - 1)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    chosen, others = order[:held_out], order[held_out:]

    def tell(epoch: int, value: float, found: float | None) -> None:
        judged = "" if found is None else f", on validation rows {found:.6g}"
        logging.getLogger("taut.sklearn").info(
            "%s: epoch %d, loss %.6g%s", name, epoch, value, judged
        )

    return fit(
        network,
        inputs[others],
        targets[others],
        loss,
        epochs=estimator.epochs,
        batch_size=estimator.batch_size,
        lr=estimator.lr,
        seed=seed,
        validation=(inputs[chosen], targets[chosen]) if held_out else None,
        patience=estimator.patience,
        on_epoch=tell if estimator.verbose else None,
    )
