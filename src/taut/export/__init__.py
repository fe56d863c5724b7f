"""Networks leave the house: folded into plain layers, saved, exported, rewritten for verifiers."""

import taut.export.spatial  # noqa: F401 (adds its layers to those that a file may name)
from taut.export.files import SavedModel, load, open_file, save
from taut.export.fold import fold
from taut.export.formats import export_onnx, export_pt2, find_input_shape
from taut.export.relu import rewrite_relu
from taut.export.standardise import standardise

__all__ = [
    "SavedModel",
    "export_onnx",
    "export_pt2",
    "find_input_shape",
    "fold",
    "load",
    "open_file",
    "rewrite_relu",
    "save",
    "standardise",
]
