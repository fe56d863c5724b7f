"""Samples and labelled data, from files and from Python objects.

`read_table` reads a file or a folder of images whole, `TableStream` batch by batch; `as_table`
takes arrays, tensors, frames and lists. The result is finite numbers, one row per point; anything
else is refused with an error that says where and what to do. `load_labelled` reads training and
test data with the class of each row, `read_labelled` one file for a trained network.
"""

from taut.data.column_selection import (
    Columns,
    column_label,
    describe_columns,
    list_some,
    parse_columns,
    select_positions,
)
from taut.data.conversion import as_table
from taut.data.download import FetchError, fetch
from taut.data.encoding import ColumnEncoding, Encoding
from taut.data.encoding_fit import fit_encoding
from taut.data.format_detection import detect_format, open_source
from taut.data.frames import FrameSource, LoadedSource, is_frame
from taut.data.labelled import LabelledData, LabelledSet
from taut.data.labelled_loading import load_labelled, read_labelled, read_matching
from taut.data.labels import NoLabelError
from taut.data.official_sets import OFFICIAL_SETS, OfficialSet, data_folder
from taut.data.pairs import Pair, check_pair, fit_pair
from taut.data.source_base import ColumnSource
from taut.data.table import Table, TableStream, count_rows, read_source, read_table

__all__ = [
    "OFFICIAL_SETS",
    "ColumnEncoding",
    "ColumnSource",
    "Columns",
    "Encoding",
    "FetchError",
    "FrameSource",
    "LabelledData",
    "LabelledSet",
    "LoadedSource",
    "NoLabelError",
    "OfficialSet",
    "Pair",
    "Table",
    "TableStream",
    "as_table",
    "check_pair",
    "column_label",
    "count_rows",
    "data_folder",
    "describe_columns",
    "detect_format",
    "fetch",
    "fit_encoding",
    "fit_pair",
    "is_frame",
    "list_some",
    "load_labelled",
    "open_source",
    "parse_columns",
    "read_labelled",
    "read_matching",
    "read_source",
    "read_table",
    "select_positions",
]
