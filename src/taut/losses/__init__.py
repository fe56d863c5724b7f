"""Losses: of margins, for certificates; of scores and distances between classes."""

from taut.losses.hkr import HKR, KR, LseHKR, SoftHKR
from taut.losses.margins import (
    LOSSES,
    HingeKR,
    MultiClassHinge,
    OffsetCrossEntropy,
    RampLoss,
    check_labels,
    loss_for_radius,
    margin_for_radius,
)
from taut.losses.quantile import QuantileLoss
from taut.losses.scores import (
    AnnealedCrossEntropy,
    CategoricalHinge,
    CosineLoss,
    OneVsRestHinge,
    TemperatureBCE,
)

__all__ = [
    "HKR",
    "KR",
    "LOSSES",
    "AnnealedCrossEntropy",
    "CategoricalHinge",
    "CosineLoss",
    "HingeKR",
    "LseHKR",
    "MultiClassHinge",
    "OffsetCrossEntropy",
    "OneVsRestHinge",
    "QuantileLoss",
    "RampLoss",
    "SoftHKR",
    "TemperatureBCE",
    "check_labels",
    "loss_for_radius",
    "margin_for_radius",
]
