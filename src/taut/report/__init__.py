"""Self-contained HTML reports: one file, no scripts, nothing fetched."""

from typing import TYPE_CHECKING

from taut.lazy import lazy_names
from taut.pictures import COLOURS, Picture, draw
from taut.report.numbers import format_bound, percent
from taut.report.page import Meter, Page, Section, Table, check_extras

__all__ = [
    "ATTACK_NAMES",
    "COLOURS",
    "NORM_NAMES",
    "UNITS",
    "Meter",
    "Page",
    "Picture",
    "Section",
    "Table",
    "certified_guarantees",
    "certified_headline",
    "check_extras",
    "classifier_page",
    "classifier_sections",
    "distance_guarantees",
    "distance_headline",
    "draw",
    "format_bound",
    "percent",
    "run_facts",
    "wasserstein_page",
]

if TYPE_CHECKING:
    from taut.report.classifier import classifier_page, classifier_sections, run_facts
    from taut.report.classifier_text import (
        ATTACK_NAMES,
        NORM_NAMES,
        certified_guarantees,
        certified_headline,
    )
    from taut.report.wasserstein import wasserstein_page
    from taut.report.wasserstein_text import UNITS, distance_guarantees, distance_headline
else:
    _MODULES = {
        "classifier": "classifier_page classifier_sections run_facts",
        "classifier_text": "ATTACK_NAMES NORM_NAMES certified_guarantees certified_headline",
        "wasserstein": "wasserstein_page",
        "wasserstein_text": "UNITS distance_guarantees distance_headline",
    }
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
