"""Checks of whether rows are independent draws: duplicated rows and correlated neighbours."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from taut.data import Table, describe_columns
from taut.transport.feature_scaling import fit_scaling

_MOST_ROWS = 2**17
_FEW_COPIES = 0.01  # share of copies up to which none is reported
_CONTINUOUS = 0.5  # distinct values per distinct row, from which copies are no coincidence
_ERRORS = 5.0  # standard errors of a correlation that chance alone hardly reaches
_ALIKE = 0.1
_FEWEST_RUNNING = 12  # fewer rows may be in order by chance
_CHANCE = 10.0  # times as many copies as rounding makes among the inner half of a column


def note_copies(data: Table) -> list[str]:
    """A note on rows that are copies of others, unless few distinct values explain them."""
    values = np.ascontiguousarray(data.values[:_MOST_ROWS])
    distinct = np.unique(values.view(f"V{values.itemsize * values.shape[1]}").ravel())
    copies = len(values) - len(distinct)
    if copies <= _FEW_COPIES * len(values):
        return []
    rows = distinct.view(values.dtype).reshape(len(distinct), -1)
    most = max(len(np.unique(column)) for column in rows.T)
    if most < _CONTINUOUS * len(distinct):
        return []
    if rows.shape[1] == 1:
        # Rounded numbers coincide by chance, in pairs of n / 2 rows in the cells between the quartiles.
        step = np.diff(np.unique(values)).min(initial=np.inf)
        width = np.subtract(*np.quantile(values, [0.75, 0.25]))
        if copies * width <= _CHANCE * step * len(values) ** 2 / 8:
            return []
    return [
        f"{copies} of {len(values)} rows of {data.source} are copies of other rows: bounds and p-value "
        "assume independent rows, and are too narrow if these are the same observations twice"
    ]


def find_running(points: Tensor) -> list[int]:
    """The columns that number the rows, or that are strictly monotone from row to row."""
    if len(points) < _FEWEST_RUNNING:
        return []
    steps, gaps = points.diff(dim=0), points.sort(0).values.diff(dim=0)
    running = (steps > 0).all(0) | (steps < 0).all(0) | (gaps == 1).all(0)
    return running.nonzero().flatten().tolist()


def note_order(data: Table, columns: Sequence[str]) -> list[str]:
    r"""A note on the column with the most correlated neighbours, if that is beyond chance.

    In i.i.d. rows the correlation of neighbours has a standard error of about $1/\sqrt n$. Columns that
    number or sort the rows are noted instead, since they say nothing about the others.
    """
    values = torch.from_numpy(np.ascontiguousarray(data.values[:_MOST_ROWS]))
    if len(values) < 20:
        return []
    notes, running = [], find_running(values)
    if running:
        which = describe_columns(columns, running)
        notes.append(
            f"the rows of {data.source} are numbered or sorted by {which}: leave out columns that only "
            "number the rows"
        )
    centred = fit_scaling("standard", values, columns)[0](values)
    squares = centred.square().sum(0).clamp_min(1e-300)
    correlations = ((centred[1:] * centred[:-1]).sum(0) / squares).numpy()
    correlations[running] = 0.0
    at = int(np.abs(correlations).argmax())
    value = float(correlations[at])
    if abs(value) <= max(_ALIKE, _ERRORS / np.sqrt(len(values))):
        return notes
    like = "alike" if value > 0 else "opposite"
    return [
        *notes,
        f"neighbouring rows of {data.source} are {like} ({describe_columns(columns, [at])}, correlation "
        f"{value:.2f}): bounds and p-value assume independent rows, and are too narrow for a time series; "
        "a file that was merely sorted does no harm",
    ]
