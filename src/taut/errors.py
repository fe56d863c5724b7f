"""The exceptions of taut. All derive from `TautError` and build their message from structured fields."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from types import ModuleType
from typing import Any, Self

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
    "check_choice",
    "check_count",
    "check_even",
    "check_finite",
    "check_nonnegative",
    "check_positive",
    "check_within",
    "did_you_mean",
    "require",
]

_FIELDS = ("subject", "argument", "rule", "got", "remedy", "option")


class TautError(Exception):
    """The root of every error that taut raises on purpose.

    The message is made of the fields, which are given in the order of the sentence.

    Args:
        subject: function, class or file that raises the error.
        argument: name of the argument that breaks the rule, if there is one.
        rule: the violated rule: a verb phrase ("must be positive") if `argument` is given, otherwise a
            full clause.
        got: what was given instead: text, or the value of the argument.
        remedy: what to do, as a sentence.
        option: an alternative remedy, as `(argument, value)`; the CLI replaces the argument with its
            own option. A string is used as is.

    Example:
        >>> error = ArgumentError("GroupSort", "group_size", "must divide 64", got=3)
        >>> print(error)
        GroupSort: `group_size` must divide 64; got group_size=3.
        >>> print(error.replace(remedy="Use 2 or 4.", option=("dim", 1)))
        GroupSort: `group_size` must divide 64; got group_size=3. Use 2 or 4, or use dim=1.
    """

    def __init__(
        self,
        subject: str = "",
        argument: str = "",
        rule: str = "",
        got: object = None,
        remedy: str = "",
        *,
        option: tuple[str, object] | str | None = None,
    ) -> None:
        self.subject, self.argument, self.rule = subject, argument, rule
        self.remedy, self.option = remedy, option
        self.got = "" if got is None else got if isinstance(got, str) else f"{argument}={got!r}"
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        start = f"{self.subject}: " if self.subject else ""
        named = f"`{self.argument}` " if self.argument else ""
        came = f"; got {self.got}" if self.got else ""
        advice = f" {self.remedy}" if self.remedy else ""
        if self.option:
            use = self.option
            if not isinstance(use, str):
                use = f"use {use[0]}={use[1]!r}"
            advice = f"{advice[:-1]}, or {use}." if advice else f" {use[:1].upper()}{use[1:]}."
        return f"{start}{named}{self.rule}{came}.{advice}"

    def replace(self, **changes: Any) -> Self:
        """The same error with other fields."""
        return type(self)(**self._fields() | changes)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._fields()), (), self.__dict__

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}


class ArgumentError(TautError, ValueError):
    """An argument breaks its rule."""


class DamagedFileError(TautError, ValueError):
    """A file is incomplete, altered, or not what its name says."""


class DataError(TautError, ValueError):
    """Data holds something that is not a finite number, or too little of it."""


class DtypeError(TautError, TypeError):
    """A tensor has a dtype that the function does not support."""


class NoRuleError(TautError, NotImplementedError):
    """A network does something for which no Lipschitz constant is proven."""


class NonFiniteError(TautError, ArithmeticError):
    """A weight holds NaN or infinity and cannot be repaired."""


class NotConvergedError(TautError, ArithmeticError):
    """An iteration did not reach the requested tolerance."""


class MissingExtraError(TautError, ImportError):
    """A feature needs a package that is not installed."""


class ViolatedCertificateError(TautError, AssertionError):
    """An attack succeeded where a certificate says that none can: a bug in taut."""


class TautWarning(UserWarning):
    """The root of every warning that taut gives."""


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Imports a module of an optional dependency, or raises an error that names the extra.

    Example:
        >>> require("json", "data", "reading").__name__
        'json'
        >>> require("nowhere", "report", "drawing")
        Traceback (most recent call last):
        ...
        taut.errors.MissingExtraError: drawing needs nowhere. Install it with pip install 'taut[report]'.
    """
    try:
        return import_module(module)
    except ImportError as error:
        top = module.partition(".")[0]
        package = {"PIL": "pillow", "ot": "POT", "sklearn": "scikit-learn"}.get(top, top)
        remedy = f"Install it with pip install 'taut[{extra}]'."
        raise MissingExtraError(rule=f"{purpose} needs {package}", remedy=remedy) from error


def check_finite(subject: str, argument: str, value: float) -> None:
    """Raises unless `value` is a finite number."""
    if not (isinstance(value, Real) and math.isfinite(value)):
        _refuse(subject, argument, "must be finite", value)


def check_positive(subject: str, argument: str, value: float) -> None:
    """Raises unless `value` is finite and above zero."""
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        _refuse(subject, argument, "must be finite and positive", value)


def check_nonnegative(subject: str, argument: str, value: float) -> None:
    """Raises unless `value` is finite and not below zero."""
    if not (isinstance(value, Real) and math.isfinite(value) and value >= 0):
        _refuse(subject, argument, "must be finite and >= 0", value)


def check_count(subject: str, argument: str, value: int, minimum: int = 1) -> None:
    """Raises unless `value` is a whole number of at least `minimum`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        _refuse(subject, argument, f"must be a whole number >= {minimum}", value)


def check_even(subject: str, argument: str, value: int) -> None:
    """Raises unless `value` is an even number of at least 2."""
    check_count(subject, argument, value, minimum=2)
    if value % 2:
        _refuse(subject, argument, "must be even", value, f"Use {value + 1}.")


def check_within(
    subject: str, argument: str, value: float, interval: str, remedy: str = ""
) -> None:
    """Raises unless `value` lies in the interval, such as "[0, 1]" or "(0, 0.5]".

    Example:
        >>> check_within("HKR", "alpha", 0.0, "[0, 1]")
        >>> check_within("HKR", "alpha", 0.0, "(0, 1]")
        Traceback (most recent call last):
        ...
        taut.errors.ArgumentError: HKR: `alpha` must lie in (0, 1]; got alpha=0.0.
    """
    low, high = map(float, interval[1:-1].split(","))
    ends = {low: interval[0] == "[", high: interval[-1] == "]"}
    if not (isinstance(value, Real) and (low < value < high or ends.get(float(value)))):
        _refuse(subject, argument, f"must lie in {interval}", value, remedy)


def check_choice(subject: str, argument: str, value: object, choices: Sequence[str]) -> None:
    """Raises unless `value` is one of `choices`."""
    if value not in choices:
        named = [*map(repr, choices)]
        rule, remedy = f"must be one of {', '.join(named)}", did_you_mean(repr(value), named)
        _refuse(subject, argument, rule, value, remedy)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A question that names the nearest of the choices; empty if none is nearer than the others.

    Upper and lower case count as equal.

    Example:
        >>> did_you_mean("certfy", ["certify", "verify"])
        'Did you mean certify?'
        >>> did_you_mean("ph", ["pH", "acid", "alcohol"])
        'Did you mean pH?'
        >>> did_you_mean("drift", ["audit", "attack"])
        ''
    """
    from difflib import SequenceMatcher

    def bare(text: str) -> str:
        return text.strip("'-").casefold()  # quotes and dashes must not count as similarity

    ratios = {each: SequenceMatcher(None, bare(name), bare(each)).ratio() for each in choices}
    best = max(ratios.values(), default=0.0)
    near = [each for each, ratio in ratios.items() if ratio >= max(0.65, best - 0.05)]
    return f"Did you mean {' or '.join(near[:3])}?" if 0 < len(near) < max(len(ratios), 2) else ""


def _refuse(subject: str, argument: str, rule: str, value: object, remedy: str = "") -> None:
    raise ArgumentError(subject, argument, rule, f"{argument}={value!r}", remedy)
