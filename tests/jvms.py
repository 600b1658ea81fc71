"""The JVM options of tests, for short runs on few cores."""

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Without the second compiler, which does not pay off in short runs."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of Spark without compiled queries: compiling takes a quarter of the CPU time of small ones. The programs
of `tests/programs` have the settings of a user."""
