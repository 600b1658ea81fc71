"""Whether this process is a worker of Spark."""

import sys

_COMMITS = "pyspark.sql.worker.python_streaming_sink_runner"


def in_worker() -> bool:
    """Return whether Spark started this process to run Python for its JVM."""
    return _run_as().startswith("pyspark.")


def only_commits() -> bool:
    """Return whether Spark (4.2) runs this process only to commit micro-batches."""
    return _COMMITS in sys.modules or _run_as() == _COMMITS


def _run_as() -> str:
    run = sys.modules["__main__"].__spec__
    return "" if run is None else run.name
