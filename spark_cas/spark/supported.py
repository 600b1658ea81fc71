"""The supported versions of pyspark. It is no dependency, because platforms install their own."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spark_cas.core.errors import SparkSetupError

OLDEST = (4, 0)
NEWEST = (4, 3)
"""The newest version on which tests run."""
SUPPORTED = "4.0 to 4.3"


def number_of(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version."""
    major, minor, *_ = (*map(int, re.findall(r"\d+", version)), 0, 0)
    return major, minor


@contextmanager
def require_pyspark() -> Iterator[None]:
    """Raise SparkSetupError if pyspark is missing or too old, or if it lacks a name that the block imports."""
    installed = "no pyspark"
    try:
        import pyspark

        installed = f"pyspark {pyspark.__version__} in {', '.join(pyspark.__path__)}"
        if number_of(pyspark.__version__) < OLDEST:
            raise _unsupported(installed)
        yield
    except ImportError as error:
        if (error.name or "").split(".")[0] != "pyspark":
            raise
        raise _unsupported(f"{installed} ({error})") from error


def _unsupported(installed: str) -> SparkSetupError:
    return SparkSetupError(
        f"this Python has {installed}, and spark_cas needs pyspark {SUPPORTED}. In an environment of your own, run "
        f"pip install 'spark-cas[spark]', or for Spark Connect alone pip install pyspark-client or "
        f"'databricks-connect>=17'. On a platform, use the Python that has the platform's pyspark."
    )
