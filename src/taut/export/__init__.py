"""Networks for other programs: folded into plain layers, saved, exported, rewritten for verifiers."""

from taut.export.certificate import describe_certificate, flat_layers, margin_lipschitz
from taut.export.folding import fold
from taut.export.input_scaling import standardise
from taut.export.quantised_weights import StoredWeights, round_weights
from taut.export.relu_rewriting import rewrite_relu
from taut.export.runtime_formats import export_onnx, export_pt2
from taut.export.safetensors_file import write_atomically, written_beside
from taut.export.saved_model import SavedModel, load, open_file, save

__all__ = [
    "SavedModel",
    "StoredWeights",
    "describe_certificate",
    "export_onnx",
    "export_pt2",
    "flat_layers",
    "fold",
    "load",
    "margin_lipschitz",
    "open_file",
    "rewrite_relu",
    "round_weights",
    "save",
    "standardise",
    "write_atomically",
    "written_beside",
]
