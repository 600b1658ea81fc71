"""What the programs in jobs/ and `spark-cas load` run."""
