"""Which layer can do what: read off the records, for the docs and the contract tests."""

from torch import nn

from taut.rules.operation_registry import Record, find_schema, registered_modules

CAPABILITIES = ("bound", "certify", "interval", "fold", "save", "export", "relu")
# What torch's own exporter does not write.
_NO_ONNX: dict[type[nn.Module], str] = {
    nn.AdaptiveAvgPool3d: "torch.onnx has no adaptive average pooling in three dimensions."
}


def capabilities_of(kind: type[nn.Module]) -> dict[str, bool]:
    """What the records promise of a type of module, by capability.

    `certify` is meant in all three arithmetics, `save` with loading and checking, `export` to ONNX
    and `.pt2`.

    Example:
        >>> capabilities_of(nn.Linear)["certify"]
        True
        >>> capabilities_of(nn.LayerNorm)["bound"]
        False
    """
    record = registered_modules().get(kind, Record())
    plain = any(
        parent in registered_modules() and registered_modules()[parent].plain is not None
        for parent in kind.__mro__
    )
    has_constant = not record.refusal and (
        plain or record.structure or record.call is not None or record.constants is not None
    )
    rounds = record.exact or record.rounding is not None
    certified = has_constant and (record.call is not None or plain or record.structure or rounds)
    return {
        "bound": has_constant,
        "certify": certified,
        "interval": certified,
        "fold": has_constant,
        "save": find_schema(kind.__name__) is not None
        or record.structure
        or record.plain is not None,
        "export": has_constant and kind not in _NO_ONNX,
        "relu": record.relu is not None
        or kind in (nn.Linear, nn.ReLU, nn.Flatten, nn.Identity)
        or any(parent.__name__ == "ConstrainedLinear" for parent in kind.__mro__),
    }


def capability_table() -> list[tuple[str, dict[str, bool], str]]:
    """A row for each type of module with a record: its name, what it can do, why it is refused."""
    rows = []
    for kind, record in registered_modules().items():
        if kind.__name__.startswith("Constrained"):
            continue
        package = ".".join(kind.__module__.split(".")[:2])
        reason = record.refusal or _NO_ONNX.get(kind, "")
        rows.append((f"{package}.{kind.__name__}", capabilities_of(kind), reason))
    return sorted(rows, key=lambda row: row[0])
