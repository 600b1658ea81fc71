"""make demo: load a year of flights from New York twice, reject a stale writer, and read the state."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.demo_state import show_state
from jobs.demo_steps import (
    console,
    ends,
    expect_refusal,
    flights_into,
    load,
    load_again,
    run,
    say,
    title,
    write_flights,
)
from spark_cas import route
from spark_cas.programs.program import submitted_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def demonstrate(build: Path, show_log: bool) -> None:  # noqa: FBT001 - as `run` calls it
    """Run the demonstration in a new log."""
    log = str(build / "demo" / "flights")
    began = time.monotonic()
    shutil.rmtree(build / "demo", ignore_errors=True)
    flights = flights_into(log, write_flights(build))
    spark = submitted_session("spark_cas demo", show_log=show_log)
    load(spark, flights)
    load_again(spark, flights)
    refuse_stale_writer(spark, log)
    show_state(spark, log, build / "demo" / "departures.png")
    shown = os.path.relpath(log)
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The log is plain Parquet in {shown}. Inspect it with")
    say(f".venv/bin/spark-cas offsets {shown}", f".venv/bin/spark-cas progress {shown}")


def refuse_stale_writer(spark: "SparkSession", log: str) -> None:
    """Show that the log rejects a writer that has not read the load."""
    title("3. A stale writer", "it has not read the load, and expects every partition to end at offset 0")
    before = ends(log)
    row = spark.sql("SELECT 'N14228' AS key, 'written without the other flights' AS value")
    stale = route(row, log).write.format("conditional-log").mode("append").option("job", "stale")
    with expect_refusal():
        stale.option("expectedOffsets", '{"0": 0, "1": 0, "2": 0, "3": 0}').save(log)
    if ends(log) != before:
        raise RuntimeError("the rejected write changed the log: this is a bug")
    say("The log is unchanged. Without the check, the writer would have changed a state that it had not read.")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], "demo.py", __doc__, demonstrate))
