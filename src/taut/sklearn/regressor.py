r"""`LipschitzRegressor`: a regressor with a proven Lipschitz constant."""

import math
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from taut.certificates import bound_output
from taut.errors import check_choice, check_positive
from taut.losses import QuantileLoss
from taut.names import ActivationName, NormName
from taut.nn import Scale
from taut.sklearn.base import LipschitzEstimator, RandomState, seed_of, weigh

_SUBJECT = "LipschitzRegressor"


class LipschitzRegressor(RegressorMixin, LipschitzEstimator):
    r"""A regressor with a proven Lipschitz constant, in units of `y` per unit of `X`.

    $$|f(x) - f(x')| \le K \|x - x'\| \quad\text{for all } x, x'$$

    Units: those of `X` and `y`. The network centres the rows and divides them by a *single* number,
    which does not change $K$. Scale features of different units first, with
    `make_pipeline(StandardScaler(), ...)`.

    Args:
        norm: norm of the distances between rows.
        lipschitz: Lipschitz constant $K$. By default it is learned together with the network, starting
            from one standard deviation of `y` per standard deviation of the features, and proven in
            the same way.
        loss: training loss, "squared_error" or "quantile".
        quantile: quantile that the loss "quantile" fits, between 0 and 1.
        monotonic_cst: monotonicity constraint of each feature, as in scikit-learn: 1 (increasing),
            0 (none) or -1 (decreasing), as an array or a dictionary by column name. It is proven for
            `predict` (see `taut.nn.Monotone`) in any norm; in "l1" the added slope is smallest.
        **others: `hidden_sizes`, `activation`, `epochs`, `batch_size`, `lr`, `validation_fraction`,
            `patience`, `tolerance`, `warm_start`, `random_state` and `verbose`, as for
            `LipschitzClassifier`.

    Attributes:
        network_: the network, from rows to one output, float64.
        lipschitz_: proven Lipschitz constant of `predict`, a `Bound`.
        increase_: with `monotonic_cst`, the proven smallest slope along the constrained features, a
            `Bound`.
        loss_curve_: mean training loss of each epoch, with `y` standardised.

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

    loss: Literal["squared_error", "quantile"]
    quantile: float

    def __init__(
        self,
        hidden_sizes: tuple[int, ...] = (64, 64),
        *,
        activation: ActivationName | str = "maxmin",
        norm: NormName = "l2",
        lipschitz: float | None = None,
        loss: Literal["squared_error", "quantile"] = "squared_error",
        quantile: float = 0.5,
        epochs: int = 50,
        batch_size: int = 64,
        lr: float = 1e-2,
        validation_fraction: float = 0.0,
        patience: int = 10,
        monotonic_cst: Any = None,
        tolerance: Any = None,
        warm_start: bool = False,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on rows `X` `(n, features)` and numbers `y` `(n,)`, all finite.

        If `sample_weight` `(n,)` are whole numbers, they repeat rows; otherwise rows are drawn in
        proportion to them. The order of rows does not matter.
        """
        pair: Any = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        rows, targets, weights = weigh(pair[0], pair[1].astype(np.float64), sample_weight)
        rows = self._scale_rows(rows)
        if self.lipschitz is not None:
            check_positive(_SUBJECT, "lipschitz", self.lipschitz)
        check_choice(_SUBJECT, "loss", self.loss, ("squared_error", "quantile"))
        loss = nn.MSELoss() if self.loss == "squared_error" else QuantileLoss(self.quantile)
        seed = seed_of(self.random_state)
        net = self._new_network(rows.shape[1], 1, seed)
        units = self._fit_units(rows)
        with np.errstate(over="ignore"):  # the next line refuses overflow
            middle, spread = targets.mean(), targets.std() or 1.0
        self._check_size("y", spread, 150)
        model, share = self._monotone(net, opposite=False)
        slope: Scale | _FreeScale
        if self.lipschitz is None:
            slope = _FreeScale(units.length / (np.sqrt(rows.var(0).mean()) or 1.0))
        else:
            steepness = self.lipschitz * share
            slope = Scale(steepness * units.length / spread)
        wanted = torch.tensor((targets - middle) / spread, dtype=torch.float32)[:, None]
        self._train(nn.Sequential(model, slope), units(rows), wanted, loss, seed, weights)
        if isinstance(slope, _FreeScale):
            steepness = slope.factor().item() * spread / units.length
        self._prove(model, units, float(steepness), middle)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The output for every row, `(n,)`."""
        return self._outputs(X).flatten().numpy()

    def bound(self, X: Any, radius: Any) -> tuple[np.ndarray, np.ndarray]:
        """Proven bounds of `predict` when rows move by up to `radius`.

        Args:
            X: `(n, features)`.
            radius: one for all rows, or `(n,)`, in the norm and in the units of `X`, or of the
                tolerances: 1 is everything within all of them, in L-inf.

        Returns:
            `low` and `high`, `(n,)` each, including all rounding.
        """
        rows = self._inputs(X)
        within = np.asarray(radius, dtype=np.float64)
        if within.ndim > 1 or within.shape not in ((), (len(rows),)) or not (within >= 0).all():
            rule = "must be one number for all rows or one for each, none negative"
            raise self._refuse("radius", rule, f"{radius!r} for {len(rows)} rows")
        spread = self._widen(np.broadcast_to(within, len(rows)).copy(), rows)
        low, high = bound_output(self.network_, rows, spread, self.norm)
        return low.numpy(), high.numpy()


class _FreeScale(nn.Module):
    """Multiplies by a positive trainable number."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.tensor(math.log(start)))

    def factor(self) -> Tensor:
        return self.logarithm.exp()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor()
