"""Implementation of the programs in jobs/ and of the `spark-cas` commands."""
