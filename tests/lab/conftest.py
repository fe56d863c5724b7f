import pytest

from taut_lab.framework.records import Records


@pytest.fixture
def markers(tmp_path):
    """The folder in which fake experiments count their runs."""
    return tmp_path / "markers"


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "records")
