"""Networks of the estimators: trained in convenient units, proven in the user's."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_choice, check_count, check_positive
from taut.names import ActivationName, ConstraintName, NormName
from taut.nn import mlp
from taut.norms import as_norm
from taut.training import fit
from taut.transport import rescale_network

__all__ = ["Units", "check_size", "fit_units", "make_network", "train_network"]

_CONSTRAINTS: dict[NormName, ConstraintName] = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}


@dataclass(frozen=True)
class Units:
    """The centre and the length in which a network is trained (see `rescale_network`)."""

    centre: Tensor
    length: float

    def __call__(self, rows: np.ndarray) -> Tensor:
        """Rows as the network in training takes them; float32."""
        return ((torch.tensor(rows) - self.centre) / self.length).float()

    def restore(
        self, trained: nn.Sequential, lipschitz: float, offset: float = 0.0
    ) -> nn.Sequential:
        """The network in the units of the data, of constant `lipschitz`; float64, evaluating."""
        network = trained.double().eval()
        return rescale_network(network, self.centre, self.length, lipschitz, offset).eval()


def fit_units(rows: np.ndarray, norm: NormName, subject: str = "fit_units") -> Units:
    """The mean of the rows, and their mean distance to it as a power of two.

    Multiplying by a power of two rounds nothing, so the constant is kept to the bit.
    """
    points = torch.tensor(rows)
    centre = points.mean(0)
    length = as_norm(norm).vector(points - centre).mean().item()
    if length > 0:
        check_size(subject, "X", length, 150)
    return Units(centre, 2.0 ** round(math.log2(length)) if length > 0 else 1.0)


def check_size(subject: str, argument: str, size: float, digits: int) -> None:
    """Raises unless the typical size of an argument is within so many powers of ten of 1."""
    if not 10.0**-digits <= size <= 10.0**digits:
        raise ArgumentError(
            subject=subject,
            argument=str(argument),
            rule=f"must spread by something between 1e-{digits} and 1e{digits}, or its "
            f"squares leave the range of floats",
            got=f"{size:.3g}",
            remedy="Choose other units, or standardise first, as StandardScaler does.",
        )


def make_network(
    subject: str,
    inputs: int,
    hidden: Any,
    outputs: int,
    activation: ActivationName | str,
    norm: NormName,
    seed: int,
) -> nn.Sequential:
    """A network of constant 1 in `norm`, with random weights from `seed`."""
    check_choice(subject, "norm", norm, tuple(_CONSTRAINTS))
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise ArgumentError(
            subject=subject,
            argument="hidden_sizes",
            rule="must be a sequence of whole numbers, one for each hidden layer",
            got=f"hidden_sizes={hidden!r}",
            remedy="Write (64,) or (64, 64).",
        )
    widths = tuple(hidden)
    for width in widths:
        check_count(subject, "hidden_sizes", width)
    if not isinstance(activation, str):
        raise ArgumentError(
            subject=subject,
            argument="activation",
            rule="must be a name that taut.nn.mlp takes, so that the estimator can be stored",
            got=f"activation={activation!r}",
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
            subject=name,
            argument="validation_fraction",
            rule="must be at least 0 and below 1",
            got=f"validation_fraction={share!r}",
        )
    held_out = min(math.ceil(share * len(inputs)), len(inputs) - 1)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    chosen, others = order[:held_out], order[held_out:]

    def on_epoch(epoch: int, value: float, found: float | None) -> None:
        validation = "" if found is None else f", on validation rows {found:.6g}"
        logging.getLogger("taut.sklearn").info(
            "%s: epoch %d, loss %.6g%s", name, epoch, value, validation
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
        on_epoch=on_epoch if estimator.verbose else None,
    )
