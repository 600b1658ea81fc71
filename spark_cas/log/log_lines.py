"""The log lines of a finished write, and of an accelerator that is not used.

An accelerator saves time through an interface that its owner may change. It is a module in
`spark_cas.log.kafka.accelerators` or `spark_cas.spark.accelerators`, because the log must not import pyspark.
"""

import logging
import os
from functools import cache

LOG_LEVEL = "SPARK_CAS_LOG_LEVEL"
"""Environment variable with the level of the logger ``spark_cas``, for Spark's Python processes and the programs.

No program of the user can set up the log in Spark's own Python processes. There the level is INFO without it.
"""

_LOG = logging.getLogger("spark_cas")


def log_write(
    log: str,
    job: str | None,
    *,
    rows: int,
    existing: int,
    seconds: float,
    chunks: int = 0,
    conflicts: int = 0,
    retries: int = 0,
    batch: int | None = None,
    error: str = "",
) -> None:
    """Log one line about a finished batch write, bulk load or micro-batch, with level INFO.

    ``log`` is an address without settings. This run appended ``rows``, and the log had ``existing`` rows of the job
    before. ``batch`` is the number of a micro-batch, and ``error`` the kind of the error of a failed write.
    """
    _set_level()
    _LOG.info(
        "%s: job=%s%s log=%s rows=%d existing=%d chunks=%d conflicts=%d retries=%d seconds=%.3f",
        f"write failed with {error}" if error else "write complete",
        job or "unnamed",
        "" if batch is None else f" batch={batch}",
        log,
        rows,
        existing,
        chunks,
        conflicts,
        retries,
        seconds,
    )


def _set_level() -> None:
    """Apply the environment variable. If this process has no handler, log to stderr, by default with level INFO."""
    level = logging.getLevelNamesMapping().get(os.environ.get(LOG_LEVEL, "").strip().upper())
    is_set_up = _LOG.hasHandlers()
    if level is None and is_set_up:
        return
    _LOG.setLevel(logging.INFO if level is None else level)
    if not is_set_up:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        _LOG.addHandler(handler)


@cache
def log_unused(accelerator: str, reason: str) -> None:
    """Log that an accelerator is not used, once in a process for each reason."""
    _LOG.info("%s: %s. This costs time.", accelerator, reason)
