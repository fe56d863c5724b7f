"""Self-contained HTML reports: one file, no external resources, readable without scripts."""

from taut.plotting import COLOURS, Picture, draw
from taut.report.classifier_report import classifier_page, classifier_sections, run_metadata
from taut.report.monitor_report import monitor_headline, monitor_page, monitor_rows
from taut.report.page import Code, Compared, Link, Meter, Page, Section, Table, check_extras
from taut.report.sentences import (
    ATTACK_NAMES,
    NORM_NAMES,
    UNITS,
    accuracy_table,
    as_sentence,
    certified_guarantees,
    certified_headline,
    distance_assumption,
    distance_guarantees,
    distance_headline,
    distance_rows,
    format_bound,
    percent,
    radius_unit,
    round_accuracies,
    round_percent,
)
from taut.report.wasserstein_differences import column_records
from taut.report.wasserstein_report import wasserstein_page

__all__ = [
    "ATTACK_NAMES",
    "COLOURS",
    "NORM_NAMES",
    "UNITS",
    "Code",
    "Compared",
    "Link",
    "Meter",
    "Page",
    "Picture",
    "Section",
    "Table",
    "accuracy_table",
    "as_sentence",
    "certified_guarantees",
    "certified_headline",
    "check_extras",
    "classifier_page",
    "classifier_sections",
    "column_records",
    "distance_assumption",
    "distance_guarantees",
    "distance_headline",
    "distance_rows",
    "draw",
    "format_bound",
    "monitor_headline",
    "monitor_page",
    "monitor_rows",
    "percent",
    "radius_unit",
    "round_accuracies",
    "round_percent",
    "run_metadata",
    "wasserstein_page",
]
