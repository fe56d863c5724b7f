"""Benchmarks: run times and critics of taut and of other libraries, side by side."""

from taut_lab.benchmarks.conv_timing import ConvSettings, run_conv
from taut_lab.benchmarks.layer_timing import LayerSettings, run_layers
from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord

__all__ = [
    "Comparison",
    "ConvSettings",
    "LayerSettings",
    "TimingEntry",
    "TimingRecord",
    "run_conv",
    "run_layers",
]
