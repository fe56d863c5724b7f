"""Samples, from files and from what Python programs hold.

`read_table` reads a file or a folder of images whole, `TableStream` some rows at a time;
`in_memory` takes arrays, tensors, frames and lists. What comes out is finite numbers, one row a
point; what cannot be that is refused with a sentence that says where and what to do.
`load_labelled` adds the class of each row, for what is learnt from labels, and `read_labelled` reads
one file for what has been learnt.
"""

from taut.data.labelled import LabelledData, LabelledSet
from taut.data.load import load_labelled, read_labelled
from taut.data.memory import in_memory
from taut.data.pairs import Pair, check_pair
from taut.data.read import read_table
from taut.data.stream import TableStream, count_rows, stream_table
from taut.data.table import Table

__all__ = [
    "LabelledData",
    "LabelledSet",
    "Pair",
    "Table",
    "TableStream",
    "check_pair",
    "count_rows",
    "in_memory",
    "load_labelled",
    "read_labelled",
    "read_table",
    "stream_table",
]
