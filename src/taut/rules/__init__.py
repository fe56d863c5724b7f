"""What is known of each operation: one record per type of module or function, one file per family."""

from taut.rules import (  # noqa: F401 (importing a family registers its records)
    arithmetic,
    batch_normalisation,
    convolution,
    dense,
    elementwise,
    pooling,
    refusals,
    resizing,
    shape,
    softmax,
    sorting,
)
from taut.rules.file_schema import FileSchema
from taut.rules.lipschitz_constants import Constants, Value
from taut.rules.operation_registry import (
    Call,
    Record,
    Rounding,
    find_record,
    find_schema,
    register,
    registered_functions,
    registered_modules,
)

__all__ = [
    "Call",
    "Constants",
    "FileSchema",
    "Record",
    "Rounding",
    "Value",
    "find_record",
    "find_schema",
    "register",
    "registered_functions",
    "registered_modules",
]
