"""HTML pages and table files of recorded experiments."""
