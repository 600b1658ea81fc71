"""How the JVMs of tests run: they live for short, on few cores."""

OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Without the second compiler, which short runs pay for and have nothing of."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of Spark: to compile each query takes a quarter of the processor time of small ones. Programs of
`tests/programs` have their own settings, those of a user."""
