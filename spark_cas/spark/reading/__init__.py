"""Reading a log through Spark: batch, stream, and the state of all keys."""
