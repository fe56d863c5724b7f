"""The command `taut`: parsing and printing only."""
