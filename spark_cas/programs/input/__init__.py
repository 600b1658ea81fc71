"""Strict readers of input files: each value arrives as it is in the file, or the load is rejected."""
