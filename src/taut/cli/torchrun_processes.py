"""Commands under `torchrun`: all processes start, fail and end together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from taut.errors import TautError

_REPORT_SECONDS = 2.0  # seconds


@contextmanager
def processes() -> Iterator[bool]:
    """The process group for the duration of a `with` block; yields whether this is rank 0.

    Only rank 0 reports errors, and no process exits before rank 0 has written its output.
    """
    import torch

    from taut.parallel import gather, is_first, process_group

    with process_group():
        try:
            yield is_first()
        except TautError as error:
            if is_first():
                raise
            # torchrun ends all processes when one fails: rank 0 must report the reason first.
            time.sleep(_REPORT_SECONDS)
            raise SystemExit(2) from error
        gather(torch.zeros(1))
