"""Signs that rows are no independent draws: copies of rows, and neighbours that are alike."""

from collections.abc import Sequence

import numpy as np

from taut.data import Table, column_label

_MOST_ROWS = 2**17
_FEW_COPIES = 0.01  # a share of copies that is not worth a word
_CONTINUOUS = 0.5  # distinct values for each distinct row, from which copies are no coincidence
_ERRORS = 5.0  # standard errors of a correlation that chance alone hardly reaches
_ALIKE = 0.1


def note_copies(data: Table, name: str) -> list[str]:
    """A note on rows that are copies of others, unless few distinct values make that natural.

    Args:
        data: a sample in memory.
        name: name of the sample.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(50, 2))
        >>> note_copies(Table(np.concatenate([rows, rows]), (), None, "t"), "x")[0][:43]
        '50 of 100 rows of x are copies of other row'
    """
    values = np.ascontiguousarray(data.values[:_MOST_ROWS])
    distinct = np.unique(values.view(f"V{values.itemsize * values.shape[1]}").ravel())
    copies = len(values) - len(distinct)
    if copies <= _FEW_COPIES * len(values):
        return []
    rows = distinct.view(values.dtype).reshape(len(distinct), -1)
    most = max(len(np.unique(column)) for column in rows.T)
    if most < _CONTINUOUS * len(distinct):
        return []
    return [
        f"{copies} of {len(values)} rows of {name} are copies of other rows: bounds and p-value assume "
        "independent rows, and are too narrow if these are the same observations twice"
    ]


def note_order(data: Table, name: str, columns: Sequence[str]) -> list[str]:
    r"""A note on the column whose neighbouring values are most alike, if that is no chance.

    In i.i.d. rows the correlation of neighbours has a standard error of about $1/\sqrt n$.

    Args:
        data: a sample in memory, in its order.
        name: name of the sample.
        columns: names of the columns, or none.

    Example:
        >>> walk = np.random.default_rng(0).normal(size=(500, 1)).cumsum(0)
        >>> note_order(Table(walk, ("level",), None, "t"), "x", ("level",))[0][:57]
        "neighbouring rows of x are alike (column 'level', correla"
    """
    values = np.asarray(data.values[:_MOST_ROWS], np.float64)
    if len(values) < 20:
        return []
    gaps = np.isnan(values)
    count = np.maximum((~gaps).sum(0), 1)
    # In parts of the largest, so that squares neither overflow nor vanish.
    largest = np.maximum(np.where(gaps, 0.0, np.abs(values)).max(0), 1e-300)
    small = values / largest
    centred = np.where(gaps, 0.0, small - np.where(gaps, 0.0, small).sum(0) / count)
    squares = np.maximum((centred**2).sum(0), 1e-300)
    correlations = (centred[1:] * centred[:-1]).sum(0) / squares
    at = int(np.abs(correlations).argmax())
    value = float(correlations[at])
    if abs(value) <= max(_ALIKE, _ERRORS / np.sqrt(len(values))):
        return []
    like = "alike" if value > 0 else "opposite"
    return [
        f"neighbouring rows of {name} are {like} (column {column_label(columns, at)}, correlation "
        f"{value:.2f}): bounds and p-value assume independent rows, and are too narrow for a time series; "
        "a file that was merely sorted does no harm"
    ]
