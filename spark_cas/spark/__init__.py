"""Adapters from Spark's data source API to the log. They contain no append logic."""
