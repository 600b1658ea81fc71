"""The command `spark-cas`."""

from spark_cas.cli.commands import main

__all__ = ["main"]
