r"""`LipschitzRegressor`: a regressor with a proven Lipschitz constant."""

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.certificates import bound_output
from taut.errors import ArgumentError, check_positive
from taut.names import ActivationName, NormName
from taut.nn import Scale
from taut.sklearn.inputs import RandomState, fit_rows_and_targets, predict_rows, seed_of
from taut.sklearn.network import check_size, fit_units, make_network, train_network

__all__ = ["LipschitzRegressor"]

_SUBJECT = "LipschitzRegressor"


class LipschitzRegressor(RegressorMixin, BaseEstimator):
    r"""A regressor with a proven Lipschitz constant, in units of `y` per unit of `X`.

    $$|f(x) - f(x')| \le K \|x - x'\| \quad\text{for all } x, x'$$

    Units: those of `X` and `y`. The network centres the rows and divides them by *one* length, which
    does not change $K$; scale features of different units first, with
    `make_pipeline(StandardScaler(), ...)`.

    Args:
        hidden_sizes: sizes of the hidden layers.
        activation: activation, a name that `taut.nn.mlp` takes.
        norm: norm of the distances between rows.
        lipschitz: $K$. None learns it with the network by least squares, starting from one standard
            deviation of `y` per standard deviation of the features; it is proven like any other.
        epochs: number of passes over the rows.
        batch_size: number of rows per step.
        lr: initial learning rate of Adam, with a cosine schedule to zero.
        validation_fraction: share of the rows held out to select the best epoch by its loss and to
            stop early; 0 trains on all rows to the end.
        patience: number of epochs without a better loss after which training stops.
        random_state: random seed or generator of weights, order and held-out rows.
        verbose: whether to log each epoch, at level INFO to the logger "taut.sklearn".

    Attributes:
        network_: the network, from rows to one output, float64.
        lipschitz_: its proven constant, a `Bound`.
        loss_curve_: the mean squared error of each epoch, in variances of `y`.

    Example:
        >>> import numpy as np
        >>> X = np.linspace(-2, 2, 200)[:, None]
        >>> model = LipschitzRegressor((16,), lipschitz=1.0, epochs=20).fit(X, np.abs(X[:, 0]))
        >>> model.lipschitz_.value <= 1
        True
        >>> low, high = model.bound(X, radius=0.1)
        >>> bool((low < model.predict(X - 0.1)).all() and (model.predict(X + 0.1) < high).all())
        True
    """

    norm: NormName

    def __init__(
        self,
        hidden_sizes: tuple[int, ...] = (64, 64),
        *,
        activation: ActivationName | str = "maxmin",
        norm: NormName = "l2",
        lipschitz: float | None = None,
        epochs: int = 50,
        batch_size: int = 32,
        lr: float = 1e-2,
        validation_fraction: float = 0.0,
        patience: int = 10,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.norm = norm
        self.lipschitz = lipschitz
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on rows `X` `(n, features)` and numbers `y` `(n,)`, all finite, by least squares."""
        rows, targets = fit_rows_and_targets(self, X, y, numeric=True)
        targets = targets.astype(np.float64)
        if self.lipschitz is not None:
            check_positive(_SUBJECT, "lipschitz", self.lipschitz)
        seed = seed_of(self.random_state)
        sizes = (rows.shape[1], self.hidden_sizes, 1)
        net = make_network(_SUBJECT, *sizes, self.activation, self.norm, seed)
        units = fit_units(rows, self.norm, _SUBJECT)
        with np.errstate(over="ignore"):  # what overflows is refused in the next line
            middle, spread = targets.mean(), targets.std() or 1.0
        check_size(_SUBJECT, "y", spread, 150)
        slope: Scale | _FreeScale
        if self.lipschitz is None:
            slope = _FreeScale(units.length / (np.sqrt(rows.var(0).mean()) or 1.0))
        else:
            slope = Scale(self.lipschitz * units.length / spread)
        wanted = torch.tensor((targets - middle) / spread, dtype=torch.float32)[:, None]
        training = nn.Sequential(net, slope)
        self.loss_curve_ = train_network(self, training, units(rows), wanted, nn.MSELoss(), seed)
        steepness = self.lipschitz
        if isinstance(slope, _FreeScale):
            steepness = slope.factor().item() * spread / units.length
        assert steepness is not None
        self.network_ = units.restore(net, float(steepness), middle)
        self.lipschitz_ = bound_lipschitz(self.network_, self.norm, (rows.shape[1],))
        return self

    @torch.no_grad()
    def predict(self, X: Any) -> np.ndarray:
        """The output for every row, `(n,)`."""
        rows = torch.tensor(predict_rows(self, X))
        return self.network_(rows).flatten().numpy()

    def bound(self, X: Any, radius: Any) -> tuple[np.ndarray, np.ndarray]:
        """Proven bounds of `predict` when rows move by up to `radius`.

        Args:
            X: `(n, features)`.
            radius: one for all rows, or `(n,)`, in the norm and in the units of `X`.

        Returns:
            `low` and `high`, `(n,)` each, every rounding included.
        """
        rows = predict_rows(self, X)
        within = np.asarray(radius, dtype=np.float64)
        if within.ndim > 1 or within.shape not in ((), (len(rows),)) or not (within >= 0).all():
            raise ArgumentError(
                subject=_SUBJECT,
                argument="radius",
                rule="must be one number for all rows or one for each, none negative",
                got=f"{radius!r} for {len(rows)} rows",
            )
        spread = torch.tensor(np.broadcast_to(within, len(rows)).copy())
        low, high = bound_output(self.network_, torch.tensor(rows), spread, self.norm)
        return low.numpy(), high.numpy()


class _FreeScale(nn.Module):
    """Multiplies by a positive number that is trained."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)))

    def factor(self) -> Tensor:
        return self.logarithm.exp()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor()
