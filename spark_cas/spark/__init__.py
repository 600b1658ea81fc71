"""Adapters to Spark: options, rows and processes; no append logic."""
