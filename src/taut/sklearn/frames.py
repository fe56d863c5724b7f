"""Frames with more than numbers, for estimators: categories, dates, times, missing values."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taut.data import Encoding, FrameSource, fit_encoding, is_frame, read_source
from taut.errors import ArgumentError


def fit_frame(subject: str, X: Any, options: Mapping[str, Any] | None) -> Encoding | None:
    """Fits the encoding of a frame that holds more than numbers; None for numbers alone.

    With `options` of `taut.data.fit_encoding`, every frame is encoded.
    """
    if not is_frame(X):
        if options is None:
            return None
        raise ArgumentError(subject, "encoding", "needs a frame with columns", type(X).__name__)
    encoding = fit_encoding(FrameSource(X, "X"), **options or {})
    return encoding if options is not None or encoding.mixed or encoding.left_out else None


def encode_frame(encoding: Encoding, X: Any) -> np.ndarray:
    """Encodes the rows of a frame, `(n, features)`, with columns matched by name; NaN where missing."""
    source = FrameSource(X, "X")
    selected = encoding.select(source.names, source.subject)
    return read_source(source.select(selected), None, encoding, 1).values


def order_columns(X: Any, names: np.ndarray | None) -> Any:
    """Reorders the columns of a frame that has exactly these; returns other data unchanged."""
    if names is None or not is_frame(X) or sorted(map(str, X.columns)) != sorted(names):
        return X
    return X[list(names)]
