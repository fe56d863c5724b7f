"""Benchmarks: run times and critics of taut and of other libraries, side by side."""

from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord
from taut_lab.benchmarks.timing_runs import ConvSettings, LayerSettings, run_conv, run_layers

__all__ = [
    "Comparison",
    "ConvSettings",
    "LayerSettings",
    "TimingEntry",
    "TimingRecord",
    "run_conv",
    "run_layers",
]
