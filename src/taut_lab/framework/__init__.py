"""How experiments are defined, run on workers, recorded, judged and presented."""

from taut_lab.framework.experiment import PRESETS, Cell, Config, Experiment, Outcome, Result
from taut_lab.framework.presentation import Presentation, ResultTable, TableEntry
from taut_lab.framework.verdict import Check, Verdict

__all__ = ["PRESETS", "Cell", "Check", "Config", "Experiment", "Outcome", "Presentation", "Result"]
__all__ += ["ResultTable", "TableEntry", "Verdict"]
