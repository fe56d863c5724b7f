import inspect
import math
import pickle

import pytest

from taut import errors
from taut.errors import ArgumentError, TautError, check_choice, check_count, check_positive

CLASSES = [value for name in errors.__all__ if isinstance(value := getattr(errors, name), type)]


@pytest.mark.parametrize("error", [c for c in CLASSES if not issubclass(c, Warning)])
def test_one_root_catches_every_error(error):
    assert issubclass(error, TautError)
    assert inspect.getdoc(error)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ArgumentError, ValueError),
        (errors.DtypeError, TypeError),
        (errors.NonFiniteError, ArithmeticError),
        (errors.NotConvergedError, ArithmeticError),
        (errors.MissingExtraError, ImportError),
        (errors.TautWarning, UserWarning),
    ],
)
def test_errors_are_what_python_would_raise(error, builtin):
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", [c for c in CLASSES if not issubclass(c, Warning)])
def test_errors_come_whole_out_of_another_process(error):
    fields = {"subject": "f", "argument": "x", "rule": "must be even", "got": 3}
    sent = error(**fields, remedy="Use 2.", option=("y", True))
    sent.add_note("in row 4")
    came = pickle.loads(pickle.dumps(sent))
    assert type(came) is error
    assert str(came) == str(sent) == "f: `x` must be even; got x=3. Use 2, or use y=True."
    assert vars(came) == vars(sent) and came.option == ("y", True)


@pytest.mark.parametrize("value", [0, -1, 0.0, math.nan, math.inf, -math.inf])
def test_not_positive(value):
    with pytest.raises(ArgumentError) as caught:
        check_positive("f", "x", value)
    assert str(caught.value) == f"f: `x` must be finite and positive; got x={value}."


@pytest.mark.parametrize("value", [1, 5e-324, 1e308, 0.5])
def test_positive(value):
    check_positive("f", "x", value)


@pytest.mark.parametrize("value", [0, -3, 1.0, True, "2", None])
def test_not_a_count(value):
    with pytest.raises(ArgumentError) as caught:
        check_count("f", "n", value)
    assert str(caught.value) == f"f: `n` must be a whole number >= 1; got n={value!r}."


def test_count():
    check_count("f", "n", 1)
    check_count("f", "n", 0, minimum=0)
    with pytest.raises(ArgumentError, match="`n` must be a whole number >= 2; got n=1."):
        check_count("f", "n", 1, minimum=2)


def test_choice():
    check_choice("f", "c", "a", ("a", "b"))
    with pytest.raises(ArgumentError) as caught:
        check_choice("f", "c", "z", ("a", "b"))
    assert str(caught.value) == "f: `c` must be one of 'a', 'b'; got c='z'."
