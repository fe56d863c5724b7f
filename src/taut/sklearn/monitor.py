"""`WassersteinMonitor`: drift of a stream of batches, with one false-alarm rate for all of them."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from taut.data import Table
from taut.sklearn.base import RandomState, predict_rows, seed_of
from taut.sklearn.frames import fit_frame, order_columns
from taut.transport import Monitor, MonitoredBatch, Scaling, fit_monitor

_SUBJECT = "WassersteinMonitor"


class WassersteinMonitor(BaseEstimator):
    """Watches batches of rows for drift from a reference, as `taut.transport.Monitor` does.

    `fit` takes the reference; `update` takes the next batch and returns the state after it. Without
    drift, the probability that an alarm is ever raised is at most `false_alarm_rate`, however many
    batches there are. An alarm shows that the population of some batch is farther than `tolerance` from
    that of the reference, in the Wasserstein distance.

    Data frames (pandas or polars) may contain categories, dates, times and missing values; their columns
    are matched by name.

    Args:
        false_alarm_rate: largest allowed probability of a false alarm over the whole run.
        tolerance: Wasserstein distance from the reference that is tolerated, in scaled units.
        scaling: scaling of the features: "standard", "robust" or "none".
        encoding: options of `taut.data.fit_encoding`, such as `{"drop": ["id"]}`, for data frames.
        window: number of batches after which the most recent ones replace the reference; None keeps the
            first reference.
        random_state: random seed or generator; equal data and seed give equal results.

    Attributes:
        monitor_: the monitor, with all batches so far.
        seed_: the seed drawn from `random_state`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> watch = WassersteinMonitor().fit(rng.normal(size=(1000, 2)))
        >>> watch.update(rng.normal(size=(200, 2))).alarm
        False
        >>> watch.update(rng.normal(size=(200, 2)) + 1).alarm
        True
    """

    monitor_: Monitor

    def __init__(
        self,
        *,
        false_alarm_rate: float = 0.05,
        tolerance: float = 0.0,
        scaling: Scaling = "standard",
        encoding: Mapping[str, Any] | None = None,
        window: int | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.false_alarm_rate = false_alarm_rate
        self.tolerance = tolerance
        self.scaling: Scaling = scaling
        self.encoding = encoding
        self.window = window
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fits the reference and forgets all batches.

        Args:
            X: `(n, features)`, or a data frame, with at least four rows; the scores are fitted to half of
                them.
            y: ignored.
        """
        if fit_frame(_SUBJECT, X, self.encoding) is None:
            rows = self._table(validate_data(self, X, dtype=np.float64, ensure_min_samples=4))
        else:
            validate_data(self, X, skip_check_array=True)
            rows = X
        self.seed_ = seed_of(self.random_state)
        options = self.get_params()
        del options["random_state"]
        self.monitor_ = fit_monitor(rows, **options, seed=self.seed_)
        return self

    def update(self, X: Any, name: str = "") -> MonitoredBatch:
        """Updates the evidence with the next batch.

        Args:
            X: `(m, features)`, new rows with the columns of the reference.
            name: name of the batch; by default its number.
        """
        check_is_fitted(self)
        if self.monitor_.encoding is None:
            named = order_columns(X, getattr(self, "feature_names_in_", None))
            X = self._table(predict_rows(self, named))
        return self.monitor_.update(X, name)

    @property
    def alarm_(self) -> bool:
        """Whether the batches so far have shown drift."""
        check_is_fitted(self)
        return self.monitor_.alarm

    def _table(self, rows: Any) -> Table:
        names = tuple(map(str, getattr(self, "feature_names_in_", ())))
        return Table(np.array(rows), names, None, "X")
