"""The options of Spark's reads and writes: one table, and its parsers."""
