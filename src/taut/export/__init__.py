"""Networks for other programs: folded into plain layers, saved, exported, rewritten for verifiers."""

from taut.export.container import write_atomically
from taut.export.files import SavedModel, load, open_file, save
from taut.export.fold import fold
from taut.export.formats import export_onnx, export_pt2
from taut.export.input_scaling import standardise
from taut.export.relu import rewrite_relu

__all__ = [
    "SavedModel",
    "export_onnx",
    "export_pt2",
    "fold",
    "load",
    "open_file",
    "rewrite_relu",
    "save",
    "standardise",
    "write_atomically",
]
