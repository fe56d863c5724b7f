"""The names that taut accepts as strings, as types: editors complete them, type checkers check them."""

from typing import Literal

__all__ = [
    "ActivationName",
    "ArchitectureName",
    "Arithmetic",
    "AugmentationName",
    "CertificateMethod",
    "ConstraintName",
    "DtypeName",
    "LossName",
    "NormName",
    "OptimizerName",
    "ScheduleName",
]

NormName = Literal["l1", "l2", "linf"]
Arithmetic = Literal["real", "float64", "float32"]
CertificateMethod = Literal["lipschitz", "interval", "best"]
# Other group sizes: `activation=lambda width: taut.nn.GroupSort(size)`.
ActivationName = Literal[
    "maxmin", "fullsort", "maxout", "abs", "relu", "householder", "householder2", "identity",
    "groupsort2", "groupsort3", "groupsort4", "groupsort5", "groupsort6", "groupsort8",
    "groupsort9", "groupsort10", "groupsort12", "groupsort16", "groupsort32",
]  # fmt: skip
ConstraintName = Literal["orthonormal", "bjorck", "spectral", "parseval", "linf", "l1", "none"]
ArchitectureName = Literal["dense", "conv", "lenet", "wrn", "distance", "ibp"]
LossName = Literal["cross_entropy", "hinge", "hkr", "ramp"]
OptimizerName = Literal["adam", "sgd", "aggmo"]
ScheduleName = Literal["cosine", "step", "constant"]
AugmentationName = Literal["none", "crop", "crop-flip", "shift"]
DtypeName = Literal["float32", "float64", "bfloat16"]
