"""`python -m taut` is the command `taut`, also under `torchrun -m taut`."""

from taut.cli.main import main

if __name__ == "__main__":
    main(prog_name="taut")
