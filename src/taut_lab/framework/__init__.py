"""How experiments are defined, run on workers, recorded, judged and presented."""
