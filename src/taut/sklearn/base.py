"""`LipschitzEstimator`: a network that is trained in convenient units and proven in the user's."""

import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import (
    _check_monotonic_cst,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.bounds import Bound
from taut.errors import ArgumentError, check_choice, check_count, check_positive, check_within
from taut.linalg import bound_operator_norm
from taut.names import ActivationName, ConstraintName, NormName
from taut.nn import Monotone, Residual, make_activation, mlp
from taut.norms import as_norm
from taut.sklearn.tolerances import UNIT_ROUNDOFF, fit_scale, widen_for_rounding
from taut.training import fit
from taut.transport import rescale_network

RandomState = int | np.random.RandomState | None

# Copies of rows by whole weights, as a multiple of the number of rows.
_MOST_COPIES = 10
_CONSTRAINTS: dict[NormName, ConstraintName] = {"l1": "l1", "l2": "orthonormal", "linf": "linf"}


def predict_rows(estimator: BaseEstimator, X: Any) -> np.ndarray:
    """Validates rows for a fitted estimator: `(n, features)` in float64, with the features of its `fit`."""
    check_is_fitted(estimator)
    rows: Any = validate_data(estimator, X, dtype=np.float64, reset=False)
    return rows


def seed_of(random_state: RandomState) -> int:
    """The seed for a torch generator: the given integer, or one drawn from a generator or at random."""
    source = check_random_state(random_state)
    return int(random_state) if isinstance(random_state, Integral) else source.randint(2**31 - 1)


def weigh(
    rows: np.ndarray, targets: np.ndarray, sample_weight: Any, class_weight: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns the rows of positive weight in a canonical order, their targets, and sampling weights.

    Integer weights repeat rows, if at most `_MOST_COPIES` times as many result; the sampling weights are
    then None. So a row of weight 2 is equivalent to two equal rows, and the order of rows does not matter.
    """
    weights = None
    if sample_weight is not None or class_weight is not None:
        weights = np.asarray(_check_sample_weight(sample_weight, rows, ensure_non_negative=True))
        if class_weight is not None:
            weights = weights * compute_sample_weight(class_weight, targets)
        counts = np.rint(weights)
        if (counts == weights).all() and counts.sum() <= _MOST_COPIES * len(rows):
            indices, weights = np.repeat(np.arange(len(rows)), counts.astype(int)), None
        else:
            indices = np.flatnonzero(weights > 0)
            weights = weights[indices]
        rows, targets = rows[indices], targets[indices]
    order = np.lexsort([*rows.T, np.unique(targets, return_inverse=True)[1]])
    return rows[order], targets[order], None if weights is None else weights[order]


@dataclass(frozen=True)
class Units:
    """The centre and the length in which a network is trained (see `rescale_network`)."""

    centre: Tensor
    length: float

    def __call__(self, rows: np.ndarray) -> Tensor:
        """Converts rows to the inputs of the network in training; float32."""
        return ((torch.tensor(rows) - self.centre) / self.length).float()


class LipschitzEstimator(BaseEstimator):
    """The parameters and the training of an estimator with a network; see `LipschitzClassifier`."""

    hidden_sizes: tuple[int, ...]
    activation: ActivationName | str
    norm: NormName
    lipschitz: float | None
    epochs: int
    batch_size: int
    lr: float
    validation_fraction: float
    patience: int
    monotonic_cst: Any
    tolerance: Any
    warm_start: bool
    random_state: RandomState
    verbose: bool

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Sets the parameters unchanged, as scikit-learn requires of a constructor."""
        for name, value in parameters.items():
            if name != "self":
                setattr(self, name, value)

    def _scale_rows(self, rows: np.ndarray) -> np.ndarray:
        """Sets `scale_`, the divisors of the columns, and returns the divided rows."""
        scale, changing = fit_scale(type(self).__name__, self, rows)
        if self.warm_start and hasattr(self, "_units"):
            # Fixed columns keep the unit of the last fit.
            if not np.array_equal(scale * changing, self.scale_ * self.changing_):
                raise self._refuse_warm_start()
        else:
            self.scale_, self.changing_ = scale, changing
        return self._divide(rows)

    def _divide(self, rows: np.ndarray) -> np.ndarray:
        # Overflow is an error in training, and such rows have no certified radius.
        with np.errstate(over="ignore"):
            return rows / self.scale_

    def _inputs(self, X: Any) -> Tensor:
        """Converts rows to the inputs of `network_`, `(n, features)`, float64."""
        return torch.tensor(self._divide(predict_rows(self, X)))

    def _widen(self, radius: Any, inputs: Tensor) -> Tensor:
        """Converts radii in `X` to radii of the network's inputs, including rounding of the division."""
        within = torch.as_tensor(radius, dtype=torch.float64).expand(len(inputs))
        if self.tolerance is None:
            return within
        return widen_for_rounding(within, as_norm(self.norm).vector(inputs), UNIT_ROUNDOFF)

    def _refuse(self, argument: str, rule: str, got: object, remedy: str = "") -> ArgumentError:
        """Creates the error for an argument of the estimator that violates a rule."""
        name = type(self).__name__
        return ArgumentError(name, argument, rule, got, remedy)

    def _refuse_warm_start(self) -> ArgumentError:
        rule = "needs the features, tolerances, classes and hidden layers of the last fit"
        remedy = "Fit a new estimator, or set warm_start=False."
        return self._refuse("warm_start", rule, "others", remedy)

    def _new_network(self, inputs: int, outputs: int, seed: int) -> nn.Sequential:
        """Creates a network of constant 1 in `norm`, with random weights or those of the last fit."""
        subject, hidden = type(self).__name__, self.hidden_sizes
        check_choice(subject, "norm", self.norm, tuple(_CONSTRAINTS))
        if isinstance(hidden, str) or not isinstance(hidden, Iterable):
            rule = "must be a sequence of whole numbers, one for each hidden layer"
            got = f"hidden_sizes={hidden!r}"
            raise self._refuse("hidden_sizes", rule, got, "Write (64,) or (64, 64).")
        widths = tuple(hidden)
        for width in widths:
            check_count(subject, "hidden_sizes", width)
        if not isinstance(self.activation, str):
            rule = "must be a name that taut.nn.mlp accepts, so that the estimator can be stored"
            raise self._refuse("activation", rule, self.activation)
        sizes = [inputs, *map(int, widths), outputs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                activation = partial(make_activation, self.activation)
                net = mlp(sizes, activation, _CONSTRAINTS[self.norm]).float()
            except ArgumentError as error:
                rule = "`hidden_sizes` and `activation` must make a network"
                got = f"hidden_sizes={widths}, activation={self.activation!r}"
                raise self._refuse("", rule, got, f"{str(error).rstrip('.')}.") from error
        if self.warm_start and hasattr(self, "_weights"):
            shapes, stored_shapes = (
                {name: value.shape for name, value in weights.items()}
                for weights in (net.state_dict(), self._weights)
            )
            if shapes != stored_shapes:
                raise self._refuse_warm_start()
            net.load_state_dict(self._weights)
        return net

    def _monotone(self, net: nn.Sequential, opposite: bool) -> tuple[nn.Module, float]:
        """Makes `net`, of constant 1, monotone as in `monotonic_cst`; also returns the reciprocal constant.

        With `opposite` the first of two outputs has the opposite signs, so that the margin is monotone.
        """
        signs = _check_monotonic_cst(self, self.monotonic_cst)
        if not np.any(signs):
            return net, 1.0
        rows = torch.tensor(np.stack([-signs, signs]) if opposite else signs[None])
        monotone, norm = Monotone(net, rows), as_norm(self.norm)
        # The slope is at most 1 + slack, whatever training does to the network of constant 1.
        linear = bound_operator_norm(rows.double(), norm, norm).value * (1 + monotone.slack)
        return monotone, (1 - 1e-12) / (1 + linear * (1 + 1e-6))

    def _fit_units(self, rows: np.ndarray) -> Units:
        """Fits the mean of the rows as centre, and their mean distance to it, to a power of two, as length.

        Multiplying by a power of two rounds nothing, so the constant is kept to the bit.
        """
        if self.warm_start and hasattr(self, "_units"):
            return self._units
        points = torch.tensor(rows)
        centre = points.mean(0)
        length = as_norm(self.norm).vector(points - centre).mean().item()
        if length != 0:
            self._check_size("X", length, 150)
        return Units(centre, 2.0 ** round(math.log2(length)) if length > 0 else 1.0)

    def _check_size(self, argument: str, size: float, digits: int) -> None:
        """Raises unless the typical size of an argument is within so many powers of ten of 1."""
        if not 10.0**-digits <= size <= 10.0**digits:
            rule = f"must spread by something between 1e-{digits} and 1e{digits}, or its squares "
            remedy = "Choose other units, or standardise first, as StandardScaler does."
            rule += "leave the range of floats"
            raise self._refuse(argument, rule, f"{size:.3g}", remedy)

    def _train(
        self,
        network: nn.Module,
        inputs: Tensor,
        targets: Tensor,
        loss: Callable[[Tensor, Tensor], Tensor],
        seed: int,
        weights: np.ndarray | None = None,
    ) -> None:
        """Trains with the parameters of the estimator; sets `loss_curve_`."""
        name = type(self).__name__
        for count in ("epochs", "batch_size", "patience"):
            check_count(name, count, getattr(self, count))
        check_positive(name, "lr", self.lr)
        check_within(name, "validation_fraction", self.validation_fraction, "[0, 1)")
        held_out = min(math.ceil(self.validation_fraction * len(inputs)), len(inputs) - 1)
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
        validation_rows, training_rows = order[:held_out], order[held_out:]

        def on_epoch(epoch: int, value: float, validation_loss: float | None) -> None:
            validation = (
                "" if validation_loss is None else f", on validation rows {validation_loss:.6g}"
            )
            logging.getLogger("taut.sklearn").info(
                "%s: epoch %d, loss %.6g%s", name, epoch, value, validation
            )

        self.loss_curve_ = fit(
            network,
            inputs[training_rows],
            targets[training_rows],
            loss,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=seed,
            validation=(inputs[validation_rows], targets[validation_rows]) if held_out else None,
            patience=self.patience,
            weights=None if weights is None else torch.tensor(weights)[training_rows],
            on_epoch=on_epoch if self.verbose else None,
        )

    def _prove(
        self, trained: nn.Module, units: Units, lipschitz: float, offset: float = 0.0
    ) -> None:
        """Sets `network_`, in the units of the data and in float64, and its proven constant."""
        body: Any = trained.network if isinstance(trained, Monotone) else trained
        self._units = units
        self._weights = {name: value.clone() for name, value in body.state_dict().items()}
        trained.double().eval()
        weight, increase = torch.empty(0, 0), 0.0
        if isinstance(trained, Monotone):
            # Before the rescaling, which changes the biases of these layers.
            weight = trained.as_residual().shortcut.weight.detach()  # type: ignore[union-attr]
            increase = trained.bound_increase().value
        network: Any = rescale_network(body, units.centre, units.length, lipschitz, offset)
        if isinstance(trained, Monotone):
            # The linear part is centred as well: the shift of its input is the bias of a layer.
            linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
            linear.weight = nn.Parameter(weight, requires_grad=False)
            linear.bias = nn.Parameter(-weight @ (units.centre / units.length), requires_grad=False)
            first, *layers, last = network
            network = nn.Sequential(
                first, Residual(nn.Sequential(*layers), "add", 1.0, linear), last
            )
            rate = increase * lipschitz * (1 - 2.0**-48)
            self.increase_ = Bound(rate, side="lower", method="Monotone.bound_increase")
        self.network_ = network.eval()
        self.lipschitz_ = bound_lipschitz(self.network_, self.norm, (len(units.centre),))

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """The outputs of the network, `(n, outputs)`, float64."""
        inputs = self._inputs(X)
        return self.network_(inputs)
