"""Pages of packages begin with a table of their names, the main ones first."""

import inspect
from importlib import import_module
from typing import Any

from docstrings import to_restructured
from sphinx.application import Sphinx
from sphinx.util.inspect import getdoc

_FEWEST = 4

# What most readers look for, in the order in which they need it. All other names follow.
_MAIN = {
    "taut.attacks": "pgd minimal_perturbation evaluate check_certificates AttackResult",
    "taut.audit": "bound_lipschitz",
    "taut.certificates": "certify Certificates bound_outputs bound_output",
    "taut.data": "load_labelled read_table as_table TableStream fit_encoding",
    "taut.evaluation": "evaluate_robustness RobustnessResult jacobian_norms",
    "taut.export": "fold save load export_onnx export_pt2",
    "taut.lattice": "interpolate maximum minimum",
    "taut.linalg": "bound_spectral_norm bound_convolution bound_operator_norm retract bjorck",
    "taut.losses": "loss_for_radius margin_for_radius OffsetCrossEntropy MultiClassHinge HKR",
    "taut.nn": "mlp OrthonormalLinear OrthonormalConv2d MaxMin GroupSort SpectralLinear LinfLinear",
    "taut.rules": "register Record",
    "taut.training": "train TrainConfig load_run TrainedRun train_gan GanConfig",
    "taut.transport": "wasserstein WassersteinResult load_critic SavedCritic exact_transport",
}


def _put_main_names_first(app: Sphinx) -> None:
    # autodoc lists the members of a module in the order of its `__all__`.
    for path, main in _MAIN.items():
        package = import_module(path)
        missing = set(main.split()) - set(package.__all__)
        if missing:
            raise ValueError(f"summaries: {path} has no {sorted(missing)}.")
        package.__all__[:] = list(dict.fromkeys([*main.split(), *package.__all__]))


def _add_table(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what != "module":
        return
    found = [(member, getattr(obj, member)) for member in getattr(obj, "__all__", ())]
    rows = [pair for pair in found if inspect.isclass(pair[1]) or inspect.isroutine(pair[1])]
    if len(rows) < _FEWEST:
        return
    lines += ["", ".. list-table::", "   :widths: 32 68", "   :class: summary", ""]
    for member, value in rows:
        promise = " ".join((getdoc(value) or "").partition("\n\n")[0].split())
        lines += [
            f"   * - :py:obj:`{member} <{name}.{member}>`",
            f"     - {to_restructured(promise)}",
        ]
    lines.append("")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects both to Sphinx, the table after the translation of docstrings."""
    app.connect("builder-inited", _put_main_names_first)
    app.connect("autodoc-process-docstring", _add_table, priority=700)
    return {"parallel_read_safe": True}
