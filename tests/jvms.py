"""The JVM options of tests, for short runs on few cores."""

import sys
from pathlib import Path

_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Without the second compiler, which does not pay off in short runs."""

_ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""The classes of Spark, loaded and verified (`tests/archived_classes.py`). Spark then starts in half the CPU time."""

OPTIONS = f"{_QUICK} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable" if _ARCHIVE.exists() else _QUICK
"""A JVM with another version or class path ignores the archive, and without ``-Xlog:disable`` logs that."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of Spark without compiled queries: compiling takes a quarter of the CPU time of small ones."""
