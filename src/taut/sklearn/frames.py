"""Frames with more than numbers, for estimators: categories, dates, times, missing values."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from taut.data import Encoding, FrameSource, fit_encoding, is_frame, read_source
from taut.errors import ArgumentError


def fit_frame(subject: str, X: Any, options: Mapping[str, Any] | None) -> Encoding | None:
    """The encoding of a frame that holds more than numbers; None for numbers alone.

    With `options`, those of `taut.data.fit_encoding`, any frame is encoded.
    """
    if not is_frame(X):
        if options is None:
            return None
        rule, got = "needs a frame with columns", type(X).__name__
        raise ArgumentError(subject=subject, argument="encoding", rule=rule, got=got)
    found = fit_encoding(FrameSource(X, "X"), **options or {})
    return found if options is not None or found.mixed or found.left_out else None


def encode_frame(encoding: Encoding, X: Any) -> np.ndarray:
    """The encoded rows of a frame, `(n, features)`, its columns found by name; NaN where missing."""
    source = FrameSource(X, "X")
    chosen = encoding.select(source.names, source.subject)
    return read_source(source.select(chosen), None, encoding, 1).values


def order_columns(X: Any, names: np.ndarray | None) -> Any:
    """A frame with its columns in the given order where it has just these; anything else as it is."""
    if names is None or not is_frame(X) or sorted(map(str, X.columns)) != sorted(names):
        return X
    return X[list(names)]
