"""Who speaks when a command of several processes fails."""

import pytest

import taut.parallel
from taut.cli import torchrun_processes as module
from taut.errors import DataError


@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_tells_and_the_others_wait(monkeypatch, first):
    waited: list[float] = []
    monkeypatch.setattr(taut.parallel, "is_first", lambda: first)
    monkeypatch.setattr(module.time, "sleep", waited.append)
    with (
        pytest.raises(DataError if first else SystemExit) as caught,
        module.processes() as told,
    ):
        assert told is first
        raise DataError(subject="data: a.csv", rule="no")
    assert (waited == []) is first
    assert first or getattr(caught.value, "code", None) == 2


def test_what_is_no_error_of_the_user_is_told_by_all(monkeypatch):
    monkeypatch.setattr(taut.parallel, "is_first", lambda: False)
    with pytest.raises(ZeroDivisionError), module.processes():
        raise ZeroDivisionError
