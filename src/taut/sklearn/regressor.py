r"""`LipschitzRegressor`: predictions that move by no more than a proven multiple of the input."""

import math
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.certificates import bound_output
from taut.errors import ArgumentError, check_positive
from taut.nn import Scale
from taut.sklearn.inputs import known_rows, new_rows_and_targets
from taut.sklearn.network import check_size, make_network, train_network, view_of
from taut.sklearn.seeds import RandomState, seed_of

__all__ = ["LipschitzRegressor"]

_SUBJECT = "LipschitzRegressor"


class LipschitzRegressor(RegressorMixin, BaseEstimator):
    r"""A regression whose slope is bounded, in units of `y` by units of `X`, with proof.

    $$|f(x) - f(x')| \le K \|x - x'\| \quad\text{for all } x, x'$$

    Units: those of `X` and `y` as they are given. The network centres the rows and divides them by
    *one* length, which leaves $K$ what it is; features of different units should be brought to one
    scale first, by `make_pipeline(StandardScaler(), ...)`.

    Args:
        hidden_sizes: widths of the hidden layers.
        activation: a name that `taut.nn.mlp` knows.
        norm: "l2", "linf" or "l1": in which distances between rows are measured.
        lipschitz: $K$. None learns it along with the network, from one standard deviation of `y`
            for one of the features: as steep as least squares want it and no steeper, and
            proven afterwards like any other.
        epochs: passes over the rows.
        batch_size: rows of one step.
        lr: the learning rate, of Adam, falling to zero along a cosine.
        validation_fraction: share of the rows that is held out to choose the best epoch by its loss
            and to stop early; 0 trains on all rows to the end.
        patience: epochs without a better one after which training stops.
        random_state: decides weights, order and held-out rows.
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

    def __init__(
        self,
        hidden_sizes: tuple[int, ...] = (64, 64),
        *,
        activation: str = "maxmin",
        norm: str = "l2",
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
        rows, targets = new_rows_and_targets(self, X, y, numeric=True)
        targets = targets.astype(np.float64)
        if self.lipschitz is not None:
            check_positive(_SUBJECT, "lipschitz", self.lipschitz)
        seed = seed_of(self.random_state)
        sizes = (rows.shape[1], self.hidden_sizes, 1)
        net = make_network(_SUBJECT, *sizes, self.activation, self.norm, seed)
        view = view_of(rows, self.norm, _SUBJECT)
        with np.errstate(over="ignore"):  # what overflows is refused in the next line
            middle, spread = targets.mean(), targets.std() or 1.0
        check_size(_SUBJECT, "y", spread, 150)
        slope: Scale | _FreeScale
        if self.lipschitz is None:
            slope = _FreeScale(view.length / (np.sqrt(rows.var(0).mean()) or 1.0))
        else:
            slope = Scale(self.lipschitz * view.length / spread)
        wanted = torch.tensor((targets - middle) / spread, dtype=torch.float32)[:, None]
        training = nn.Sequential(net, slope)
        self.loss_curve_ = train_network(self, training, view(rows), wanted, nn.MSELoss(), seed)
        steepness = self.lipschitz
        if isinstance(slope, _FreeScale):
            steepness = slope.factor().item() * spread / view.length
        assert steepness is not None
        self.network_ = view.proven_network(net, float(steepness), middle)
        self.lipschitz_ = bound_lipschitz(self.network_, self.norm, (rows.shape[1],))
        return self

    @torch.no_grad()
    def predict(self, X: Any) -> np.ndarray:
        """The output for every row, `(n,)`."""
        rows = torch.tensor(known_rows(self, X))
        return self.network_(rows).flatten().numpy()

    def bound(self, X: Any, radius: Any) -> tuple[np.ndarray, np.ndarray]:
        """Between what numbers `predict` stays when rows move by up to `radius`: a theorem.

        Args:
            X: `(n, features)`.
            radius: one for all rows, or `(n,)`, in the norm and in the units of `X`.

        Returns:
            `low` and `high`, `(n,)` each, every rounding included.
        """
        rows = known_rows(self, X)
        within = np.asarray(radius, dtype=np.float64)
        if within.ndim > 1 or within.shape not in ((), (len(rows),)) or not (within >= 0).all():
            raise ArgumentError(
                f"{_SUBJECT}: `radius` must be one number for all rows or one for each, none "
                f"negative; got {radius!r} for {len(rows)} rows."
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
