"""The log line of an accelerator that is not used.

An accelerator saves time through an interface that its owner may change. It is a module in
`spark_cas.log.kafka.accelerators` or `spark_cas.spark.accelerators`, because the log must not import pyspark.
"""

import logging
from functools import cache

_LOG = logging.getLogger("spark_cas")


@cache
def log_unused(accelerator: str, reason: str) -> None:
    """Log that an accelerator is not used, once in a process for each reason."""
    _LOG.info("%s: %s. This costs time.", accelerator, reason)
