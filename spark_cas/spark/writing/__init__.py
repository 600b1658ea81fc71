"""Writing to a log through Spark: batch and stream."""
