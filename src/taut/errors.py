"""What taut raises: one root, few children, sentences that teach.

Every message has the same five parts: subject, argument, rule, what came, remedy.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType

__all__ = [
    "ArgumentError",
    "DamagedFileError",
    "DataError",
    "DtypeError",
    "MissingExtraError",
    "NoRuleError",
    "NonFiniteError",
    "NotConvergedError",
    "TautError",
    "TautWarning",
    "ViolatedCertificateError",
]


class TautError(Exception):
    """The root of every error that taut raises on purpose."""


class ArgumentError(TautError, ValueError):
    """An argument breaks its rule."""


class DamagedFileError(TautError, ValueError):
    """A file is incomplete, altered, or not what its name says."""


class DataError(TautError, ValueError):
    """Data holds something that no number can stand for, or too little of it."""


class DtypeError(TautError, TypeError):
    """A tensor has a dtype in which the promise of the callee cannot be kept."""


class NoRuleError(TautError, NotImplementedError):
    """A network does something for which no Lipschitz constant is proven."""


class NonFiniteError(TautError, ArithmeticError):
    """A weight holds NaN or infinity and cannot be repaired."""


class NotConvergedError(TautError, ArithmeticError):
    """An iteration did not reach the tolerance asked for."""


class MissingExtraError(TautError, ImportError):
    """A feature needs a package that is not installed."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """The module of that name, imported now, or an error that tells which extra brings it.

    Example:
        >>> require("json", "data", "reading").__name__
        'json'
        >>> require("nowhere", "report", "drawing")
        Traceback (most recent call last):
        ...
        taut.errors.MissingExtraError: drawing needs nowhere; install with pip install 'taut[report]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        package = {"PIL": "pillow", "ot": "POT"}.get(top, top)
        raise MissingExtraError(
            f"{purpose} needs {package}; install with pip install 'taut[{extra}]'"
        ) from error


class ViolatedCertificateError(TautError, AssertionError):
    """An attack succeeded where a certificate says that none can: an error of taut."""


class TautWarning(UserWarning):
    """The root of every warning that taut gives."""


def check_positive(subject: str, argument: str, value: float) -> None:
    """Raises unless `value` is finite and above zero."""
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise ArgumentError(
            f"{subject}: `{argument}` must be finite and positive; got {argument}={value!r}."
        )


def check_count(subject: str, argument: str, value: int, least: int = 1) -> None:
    """Raises unless `value` is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ArgumentError(
            f"{subject}: `{argument}` must be a whole number >= {least}; got {argument}={value!r}."
        )


def check_choice(subject: str, argument: str, value: object, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ArgumentError(
            f"{subject}: `{argument}` must be one of {listed}; got {argument}={value!r}."
        )
