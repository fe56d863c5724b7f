"""The paper, one file per table or figure: from a seed to records."""
