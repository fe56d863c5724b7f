"""`python -m taut` is the command `taut`, also under `torchrun -m taut`."""

import os
import sys

from taut.cli.main import main

if __name__ == "__main__":
    try:
        main(prog_name="taut")
    except SystemExit as end:
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            raise
        # Threads of torch.distributed may still run when the interpreter is torn down, which aborts
        # a process that has finished its work; so nothing is torn down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else int(end.code is not None))
