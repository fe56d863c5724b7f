"""Benchmarks: run times and critics of taut and of other libraries, side by side."""

from taut_lab.benchmarks.timing_records import Comparison, TimingEntry, TimingRecord
from taut_lab.benchmarks.timing_runs import (
    ConvSettings,
    DistanceSettings,
    LayerSettings,
    run_conv,
    run_distances,
    run_layers,
)

__all__ = [
    "Comparison",
    "ConvSettings",
    "DistanceSettings",
    "LayerSettings",
    "TimingEntry",
    "TimingRecord",
    "run_conv",
    "run_distances",
    "run_layers",
]
