"""Taut files made by hand: what the format says, stated a second time, for honest and evil use."""

import hashlib
import json
import struct
from typing import Any

import numpy as np

CODES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "bool": "BOOL"}
BLANK = "0" * 64


def linear_story(**changes: Any) -> dict[str, Any]:
    """The metadata of a file that holds one dense layer of shape (2, 3)."""
    story = {
        "format": 1,
        "sha256": BLANK,
        "model": linear_model(),
        "frozen": [],
        "norm": "l2",
        "output_norm": "l2",
        "constant": 10.0,
        "method": "by hand",
        "input_shape": None,
        "versions": {"taut": "0"},
    }
    return {**story, **changes}


def linear_model(**changes: Any) -> dict[str, Any]:
    arguments = {"in_features": 3, "out_features": 2, "bias": True, **changes}
    return {"kind": "Linear", "arguments": arguments}


def linear_tensors(prefix: str = "") -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return {
        f"{prefix}weight": draw((2, 3)).astype(np.float32),
        f"{prefix}bias": draw(2).astype(np.float32),
    }


def forge(story: Any, tensors: dict[str, np.ndarray], text: str | None = None) -> bytes:
    """A safetensors file with a right checksum, whatever else is wrong with it."""
    entries: dict[str, Any] = {}
    body = b""
    for name, array in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        entries[name] = {
            "dtype": CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(blob)],
        }
        body += blob
    text = json.dumps(story, separators=(",", ":")) if text is None else text
    header = json.dumps({"__metadata__": {"taut": text}, **entries}).encode()
    data = struct.pack("<Q", len(header)) + header + body
    return data.replace(BLANK.encode(), hashlib.sha256(data).hexdigest().encode(), 1)
