"""The options of Spark's reads and writes: one table, parsed once at the edge."""
