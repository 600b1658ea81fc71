"""The versions of this process, and the problems among them."""

import os
import platform
import re
import socket
from collections.abc import Iterator, Mapping
from importlib import metadata

from spark_cas import __version__
from spark_cas.core.finding import Finding, Problem, Severity

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
    supported = supported_spark()
    if spark is not None and supported is not None:
        oldest, newest = supported
        if not oldest <= _number_of(spark) < newest:
            bounds = f"{oldest[0]}.{oldest[1]} or newer, and older than {newest[0]}.{newest[1]}"
            yield Finding(
                Problem.UNSUPPORTED_VERSION,
                Severity.WARNING,
                "pyspark",
                f"pyspark {spark} is not supported: no test runs on it. Supported is pyspark {bounds}",
                f"pip install 'pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1]}'",
            )
    for name, used in accelerated.items():
        if not used:
            yield Finding(
                Problem.ACCELERATOR_UNUSED,
                Severity.INFO,
                f"accelerator {name}",
                f"this process cannot use the accelerator {name}. Writes take longer, and are correct",
            )


def supported_spark() -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the oldest supported version of pyspark and the first unsupported one; None if they are not known."""
    try:
        required = metadata.requires("spark-cas") or []
    except metadata.PackageNotFoundError:
        return None
    for each in required:
        oldest = re.search(r"^pyspark\b[^;]*>=(\d+\.\d+)", each)
        newest = re.search(r"^pyspark\b[^;]*<(\d+\.\d+)", each)
        if oldest and newest:
            return _number_of(oldest[1]), _number_of(newest[1])
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _number_of(version: str) -> tuple[int, int]:
    numbers = [*map(int, re.findall(r"\d+", version)), 0, 0]
    return numbers[0], numbers[1]
