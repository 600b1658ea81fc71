"""The report of `spark-cas doctor`, and the states of the jobs of a log."""
