"""The commands that this package adds to `taut`: target and help line, cheap to import.

Entry points of the group `taut.commands` name these pairs; see `taut.cli.main.plugins`.
"""

__all__ = ["BENCH", "REPRODUCE"]

REPRODUCE = (
    "taut_lab.cli.reproduce:reproduce",
    "Reproduce the paper of Anil, Lucas and Grosse (2019).",
)
BENCH = ("taut_lab.cli.bench:bench", "Benchmark layers and critics against other libraries.")
