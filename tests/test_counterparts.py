"""The page for users of other libraries names only what exists here."""

import re
from functools import reduce
from pathlib import Path

import pytest

import taut

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "coming-from.rst"
ROWS = re.findall(r"\* - ``(\w+)``\n     - ``(taut\.[\w.]+)``", PAGE.read_text(encoding="utf-8"))


def test_the_page_has_a_counterpart_in_each_row():
    assert len(ROWS) == PAGE.read_text(encoding="utf-8").count("   * - ``") > 100


@pytest.mark.parametrize("path", sorted({counterpart for _, counterpart in ROWS}))
def test_counterparts_exist(path):
    assert reduce(getattr, path.split(".")[1:], taut) is not None
