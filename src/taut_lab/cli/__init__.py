"""The commands `taut reproduce` and `taut bench`."""
