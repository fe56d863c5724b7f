"""How experiments are defined, run on workers, recorded and presented."""
