"""Read a log through Spark: batch reads, streams, and the state of all keys."""
