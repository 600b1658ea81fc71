"""The versions of this process, and the problems among them."""

import os
import platform
import socket
from collections.abc import Iterator, Mapping
from importlib import metadata

from spark_cas import __version__
from spark_cas.core.finding import Finding, Problem, Severity
from spark_cas.spark.supported import NEWEST, OLDEST, SUPPORTED, number_of

_PACKAGES = ("pyspark", "confluent-kafka", "obstore", "pyarrow", "kafka-python")
_PLATFORMS = {"DATABRICKS_RUNTIME_VERSION": "Databricks", "EMR_RELEASE_LABEL": "EMR", "GLUE_VERSION": "Glue"}
"""The environment variables in which platforms name their version."""


def versions() -> dict[str, str | None]:
    """Return the versions of the package, Python, Spark, the client libraries and the platform.

    None if a package is not installed.
    """
    named = [f"{name} {os.environ[key]}" for key, name in _PLATFORMS.items() if os.environ.get(key)]
    return {
        "spark-cas": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "platform": ", ".join([*named, f"{platform.system()} {platform.machine()}"]),
    }


def accelerators(of_log: Mapping[str, bool]) -> dict[str, bool]:
    """Return all accelerators, each with whether this process can use it, except that of the JVM."""
    return {**of_log, "quick_ack": hasattr(socket, "TCP_QUICKACK")}


def environment_findings(accelerated: Mapping[str, bool]) -> Iterator[Finding]:
    """Yield findings on the versions and the accelerators."""
    spark = _version("pyspark")
    if spark is not None and not OLDEST <= number_of(spark) <= NEWEST:
        yield Finding(
            Problem.UNSUPPORTED_VERSION,
            Severity.WARNING,
            "pyspark",
            f"pyspark {spark} is not supported: no test runs on it. Supported is pyspark {SUPPORTED}",
            "pip install 'spark-cas[spark]'",
        )
    for name, used in accelerated.items():
        if not used:
            client = "pip install --only-binary :all: 'confluent-kafka==2.16.*'"
            yield Finding(
                Problem.ACCELERATOR_UNUSED,
                Severity.INFO,
                f"accelerator {name}",
                f"this process cannot use the accelerator {name}. Writes take longer, and are correct",
                "run on Linux" if name == "quick_ack" else client,
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
