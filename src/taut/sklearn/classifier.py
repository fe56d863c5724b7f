r"""`LipschitzClassifier`: a classifier with certified predictions."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from taut.audit import bound_lipschitz
from taut.certificates import Certificates, certify
from taut.errors import ArgumentError, check_choice, check_positive
from taut.export import fold
from taut.losses import LOSSES, OffsetCrossEntropy, loss_for_radius
from taut.names import ActivationName, LossName, NormName
from taut.nn import Scale
from taut.norms import as_norm
from taut.sklearn.base import LipschitzEstimator, RandomState, seed_of, weigh
from taut.sklearn.tolerances import as_tolerances, shrink_for_rounding

_SUBJECT = "LipschitzClassifier"
# Most rows behind the distances between classes.
_MOST_ROWS = 1000


class LipschitzClassifier(ClassifierMixin, LipschitzEstimator):
    r"""A network of proven Lipschitz constant, with a certified radius for every prediction.

    The loss asks for margins $f_t - f_i$ of the true class above
    `taut.losses.margin_for_radius(radius)`; with such a margin, no $x'$ with $\|x' - x\| <$ `radius`
    has a different prediction.

    Units: radii and the constant are in the units of `X`. The network centres the rows and divides
    them by a *single* number, which changes neither. Scale features of different units first, with
    `make_pipeline(StandardScaler(), ...)`; radii are then in standard deviations.

    Prediction runs in float64, and the certificates cover that execution. Everything is stored with
    the estimator: copies and pickles give bitwise identical predictions.

    Args:
        hidden_sizes: sizes of the hidden layers.
        activation: name of the activation, as in `taut.nn.mlp`.
        norm: norm of the radii and of the constant.
        lipschitz: Lipschitz constant of `decision_function`; it only sets the scale of the outputs.
        radius: target radius. By default a quarter of the median distance from a row to the
            nearest row of another class, which is half of the largest radius that any classifier
            could certify for both.
        loss: training loss, "cross_entropy", "hinge", "hkr" or "ramp".
        epochs: number of passes over the rows.
        batch_size: number of rows per step.
        lr: initial learning rate of Adam, with a cosine schedule to zero.
        validation_fraction: fraction of the rows held out to select the epoch with the lowest loss and
            to stop early; with 0, all rows are used for training, for all epochs.
        patience: number of epochs without a lower validation loss after which training stops.
        monotonic_cst: monotonicity constraint of each feature, as in scikit-learn: 1 (increasing),
            0 (none) or -1 (decreasing), as an array or a dictionary by column name. It is proven for
            `decision_function`, the margin of the second class over the first (see
            `taut.nn.Monotone`); two classes only.
        tolerance: tolerance of each feature: a number, an array, or a dictionary by column name, where
            features that are not named do not change (0). Radii and the constant are then in multiples
            of the tolerances; with `norm="linf"` and `radius=1`, the target is that the prediction holds
            if all features change by their tolerance at once.
        class_weight: weights by label, or "balanced" for inverse class frequencies.
        warm_start: whether `fit` starts from the weights and units of the last fit.
        random_state: random seed or generator for the initial weights, the order of the rows and the
            held-out rows.
        verbose: whether to log each epoch, at level INFO to the logger "taut.sklearn".

    Attributes:
        classes_: the labels, sorted.
        network_: the network, in float64, from rows divided by `scale_` to one output per class.
        scale_: divisor of each feature; 1 without tolerances.
        lipschitz_: proven Lipschitz constant of the network, a `Bound`.
        radius_: target radius of the training.
        temperature_: factor of the outputs in the softmax of `predict_proba`: the one with the lowest
            loss on the training rows, but at most that of the cross-entropy for `radius_`.
        increase_: with `monotonic_cst`, the proven smallest slope along the constrained features, a
            `Bound`.
        loss_curve_: mean training loss of each epoch.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = LipschitzClassifier(hidden_sizes=(16,), epochs=20).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
        >>> model.lipschitz_.value <= 1
        True
        >>> bool(model.certify(X, y).certified_accuracy(0.1) > 0.8)
        True
    """

    lipschitz: float
    radius: float | None
    loss: LossName
    class_weight: Any

    def __init__(
        self,
        hidden_sizes: tuple[int, ...] = (64, 64),
        *,
        activation: ActivationName | str = "maxmin",
        norm: NormName = "l2",
        lipschitz: float = 1.0,
        radius: float | None = None,
        loss: LossName = "cross_entropy",
        epochs: int = 50,
        batch_size: int = 64,
        lr: float = 1e-2,
        validation_fraction: float = 0.0,
        patience: int = 10,
        monotonic_cst: Any = None,
        tolerance: Any = None,
        class_weight: Any = None,
        warm_start: bool = False,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self._keep(locals())

    @classmethod
    def from_network(
        cls,
        network: nn.Module,
        input_shape: Sequence[int],
        classes: Sequence[Any] | None = None,
        norm: NormName = "l2",
    ) -> Self:
        """Creates a fitted estimator from a network that was trained elsewhere.

        So methods for estimators, such as `RobustConformalClassifier.calibrate`, also accept the networks
        of `taut.load` and `taut train`. They are executed in float64.

        Args:
            network: maps `(n, *input_shape)` to one output a class; folded into a copy.
            input_shape: shape of one input; rows of `X` are flattened inputs.
            classes: labels in the order of the outputs, increasing; None for 0, 1, ...
            norm: norm of the radii.

        Example:
            >>> net = taut.nn.mlp([4, 16, 3])
            >>> model = LipschitzClassifier.from_network(net, (4,), ["a", "b", "c"])
            >>> model.predict(np.zeros((2, 4))).shape, model.lipschitz_.value <= 1.00001
            ((2,), True)
        """
        estimator: Any = cls(norm=norm)
        estimator.n_features_in_ = features = math.prod(input_shape)
        estimator.scale_, estimator.changing_ = np.ones(features), np.ones(features, bool)
        first = [Scale(1.0), nn.Unflatten(1, tuple(input_shape))][: len(input_shape)]
        estimator.network_ = nn.Sequential(*first, fold(network).double()).eval()
        estimator.lipschitz_ = bound_lipschitz(estimator.network_, norm, (features,))
        with torch.no_grad():
            outputs = estimator.network_(torch.zeros(1, features, dtype=torch.float64)).shape
        labels = np.arange(outputs[-1]) if classes is None else np.asarray(classes)
        if tuple(outputs) != (1, max(2, len(labels))) or list(labels) != sorted(set(labels)):
            rule = "must be increasing, one for each of two or more outputs"
            got = f"{labels.tolist()} for outputs of shape {tuple(outputs[1:])}"
            raise ArgumentError("LipschitzClassifier.from_network", "classes", rule, got)
        estimator.classes_, estimator.temperature_ = labels, 1.0
        return estimator

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains on rows `X` `(n, features)`, finite, with labels `y` `(n,)` of any kind.

        If `sample_weight` `(n,)` times the class weights are whole numbers, they repeat rows; otherwise
        rows are drawn in proportion to them. The order of rows does not matter.
        """
        pair: Any = validate_data(self, X, y, dtype=np.float64)
        rows, labels = pair
        check_classification_targets(labels)
        rows, labels, weights = weigh(rows, labels, sample_weight, self.class_weight)
        rows = self._scale_rows(rows)
        check_positive(_SUBJECT, "lipschitz", self.lipschitz)
        check_choice(_SUBJECT, "loss", self.loss, LOSSES)
        self.classes_, indices = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            got = f"one class, {self.classes_[:1].tolist()[0]!r}"
            raise self._refuse("y", "must have at least two classes", got)
        if self.monotonic_cst is not None and len(self.classes_) > 2:
            rule = "needs two classes, of which the second rises"
            got = f"{len(self.classes_)} classes"
            remedy = "Fit one class against the others, as OneVsRestClassifier does."
            raise self._refuse("monotonic_cst", rule, got, remedy)
        seed = seed_of(self.random_state)
        net = self._new_network(rows.shape[1], len(self.classes_), seed)
        units = self._fit_units(rows)
        # The size of the outputs, which are trained in float32.
        self._check_size("lipschitz * X", self.lipschitz * units.length, 30)
        index = torch.from_numpy(indices)
        self.radius_ = self._choose_radius(rows, index)
        constants = {"lipschitz": self.lipschitz, "norm": self.norm}
        loss = loss_for_radius(self.radius_, **constants, kind=self.loss)
        model, share = self._monotone(net, opposite=True)
        steepness = self.lipschitz * share
        training = nn.Sequential(model, Scale(steepness * units.length))
        self._train(training, units(rows), index, loss, seed, weights)
        self._prove(model, units, steepness)
        # It would be infinite for rows that are separated without error.
        entropy = loss_for_radius(self.radius_, **constants, kind="cross_entropy")
        assert isinstance(entropy, OffsetCrossEntropy)
        with torch.no_grad():
            outputs = self.network_(torch.tensor(rows))
        self.temperature_ = _best_temperature(outputs, index, entropy.temperature)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """The outputs, `(n, classes)`; for two classes the margin of the second, `(n,)`."""
        outputs = self._outputs(X).numpy()
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def predict(self, X: Any) -> np.ndarray:
        """The label of the largest output, `(n,)`."""
        outputs = self._outputs(X)
        return self.classes_[outputs.argmax(1).numpy()]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The softmax of `temperature_` times the outputs, `(n, classes)`: an estimate, not proven."""
        outputs = self._outputs(X)
        return (self.temperature_ * outputs).softmax(1).numpy()

    def certify(self, X: Any, y: Any = None, tolerance: Any = None) -> Certificates:
        """Certifies for every row a radius within which `predict` returns the same label.

        In units of `X`, or of the tolerances: in L-inf a radius above 1 covers every row within all of
        them together.

        Args:
            X: `(n, features)`.
            y: `(n,)`, the true labels, for `certified_accuracy`.
            tolerance: tolerances in place of those of the estimator.

        Returns:
            `taut.Certificates` of `network_` in float64 arithmetic; `classes_[prediction]` is the
            result of `predict`.
        """
        inputs = self._inputs(X)
        labels = None if y is None else self._indices(y)
        options = {"labels": labels, "arithmetic": "float64"}
        if tolerance is None and self.tolerance is None:
            return certify(self.network_, inputs, self.norm, **options)
        units = self.changing_.astype(np.float64)
        if tolerance is not None:
            names = getattr(self, "feature_names_in_", None)
            tolerances = as_tolerances(_SUBJECT, tolerance, names, inputs.shape[1])
            units = tolerances / self.scale_ * (1 - 2.0**-50)
        # The first layer multiplies all inputs by one number: before it is the place of tolerances.
        head, body = self.network_[0], nn.Sequential(*self.network_[1:])
        assert isinstance(head, Scale)
        scaled = inputs * head.factor
        certificates = certify(
            body, scaled, self.norm, tolerance=torch.tensor(units * head.factor), **options
        )
        # Rows are divided by their scale, and inputs multiplied by the factor.
        return shrink_for_rounding(certificates, inputs.numpy(), units)

    def _indices(self, y: Any) -> Tensor:
        labels = np.asarray(y)
        indices = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        unknown = labels[self.classes_[indices] != labels]
        if len(unknown):
            got = f"{unknown.tolist()[0]!r}, which is none of {self.classes_.tolist()}"
            raise self._refuse("y", "must hold the classes of `fit`", got)
        return torch.from_numpy(indices)

    def _choose_radius(self, rows: np.ndarray, labels: Tensor) -> float:
        if self.radius is not None:
            check_positive(_SUBJECT, "radius", self.radius)
            return float(self.radius)
        some = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:_MOST_ROWS]
        points, classes = torch.tensor(rows)[some], labels[some]
        # Not by |x|^2 + |y|^2 - 2xy, which far from the origin cancels to noise.
        exact = "donot_use_mm_for_euclid_dist"
        apart = torch.cdist(points, points, p=as_norm(self.norm).p, compute_mode=exact)
        nearest = apart.masked_fill(classes[:, None] == classes, math.inf).amin(1)
        # Where most rows lie on rows of another class, those that do not decide.
        distances = nearest[nearest.isfinite() & (nearest > 0)]
        return distances.median().item() / 4 if len(distances) else 1.0


def _best_temperature(outputs: Tensor, labels: Tensor, sharpest: float) -> float:
    """The factor up to `sharpest` that maximises the likelihood of the labels, a convex problem."""

    def negative_log_likelihood(share: float) -> float:
        return nn.functional.cross_entropy(share * sharpest * outputs, labels).item()

    optimum: Any = minimize_scalar(negative_log_likelihood, bounds=(0.0, 1.0), method="bounded")
    return sharpest * float(optimum.x)
