"""Write to a log through Spark: batch writes and streams."""
