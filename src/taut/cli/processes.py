"""A command under `torchrun`: all processes of it begin together, fail together, end together."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from taut.errors import TautError

__all__ = ["processes"]

_LAST_WORDS = 2.0  # seconds


@contextmanager
def processes() -> Iterator[bool]:
    """The process group for the time of a `with` block; says whether this process is the first.

    What is wrong is told by the first process alone, and none leaves before the first has written.
    """
    import torch

    from taut.parallel import gather, is_first, process_group

    with process_group():
        try:
            yield is_first()
        except TautError as error:
            if is_first():
                raise
            # torchrun ends all processes when one fails: the first must have told why.
            time.sleep(_LAST_WORDS)
            raise SystemExit(2) from error
        gather(torch.zeros(1))
