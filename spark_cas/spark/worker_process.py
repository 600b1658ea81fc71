"""Whether this process is a worker of Spark."""

import sys


def in_worker() -> bool:
    """Return whether Spark started this process to run Python for its JVM."""
    return run_as().startswith("pyspark.")


def run_as() -> str:
    """Return the module that this process runs, or an empty text."""
    run = sys.modules["__main__"].__spec__
    return "" if run is None else run.name
