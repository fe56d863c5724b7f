"""Self-contained HTML pages: one file, no script, nothing fetched."""

from taut.pictures import COLOURS, Picture, draw
from taut.report.extras import check_extras
from taut.report.page import Meter, Page, Section, Table

__all__ = ["COLOURS", "Meter", "Page", "Picture", "Section", "Table", "check_extras", "draw"]
