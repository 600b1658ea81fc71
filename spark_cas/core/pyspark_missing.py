"""The error if pyspark is missing or too old. It is no dependency, because platforms install their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from spark_cas.core.errors import SparkSetupError

SUPPORTED = "4.0 to 4.3"
NEWEST = (4, 3)
"""The newest version of pyspark on which tests run."""
_PACKAGES = ("pyspark", "databricks-connect", "pyspark-client")


@contextmanager
def require_pyspark() -> Iterator[None]:
    """Raise SparkSetupError if an import fails because a module of pyspark is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "pyspark":
            raise
        raise SparkSetupError(
            f"this Python has {_installed()}, and spark_cas needs pyspark {SUPPORTED}. On your own machine run "
            f"pip install 'spark-cas[spark]'. On a platform use the Python that has the platform's pyspark."
        ) from error


def _installed() -> str:
    for name in _PACKAGES:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "no pyspark"
