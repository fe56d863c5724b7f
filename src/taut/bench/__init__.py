"""Speed, measured: the layers of taut and of its peers, side by side in one process."""

from taut.bench.conv import ConvSettings, run_conv
from taut.bench.layers import LayerSettings, run_layers
from taut.bench.record import Entry, Race, Record
from taut.lab.timing import Contestant, Timing, race

__all__ = [
    "Contestant",
    "ConvSettings",
    "Entry",
    "LayerSettings",
    "Race",
    "Record",
    "Timing",
    "race",
    "run_conv",
    "run_layers",
]
