"""A driver: one Spark session that runs a write for each JSON line on stdin, and replies with a JSON line.

`tests.faults.rig` runs it as a program. It exits as soon as its standard input is closed, because then the process
that started it has ended.
"""

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, SparkStageInfo, TaskContext
from pyspark.sql import DataFrame, SparkSession

from jobs import bootstrap_state
from spark_cas import error_from_text, route
from spark_cas.programs import bulk_load
from spark_cas.spark.versions import start_for_existing_records
from tests.spark.tasks import stages_of

EXECUTORS_WITHIN_SECONDS = 120.0


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--conf", type=json.loads, required=True)
    arguments.add_argument("--executors", type=int, default=0)
    given = arguments.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of Spark must not mix with the replies
    orders: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_take_orders, args=(orders,), daemon=True).start()
    builder = SparkSession.builder
    for name, value in given.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    _await_executors(spark, given.executors)
    answers.write(json.dumps({"ready": True}) + "\n")
    while True:
        answers.write(json.dumps(_run(spark, json.loads(orders.get()))) + "\n")


def _take_orders(orders: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)


def _await_executors(spark: SparkSession, count: int) -> None:
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + EXECUTORS_WITHIN_SECONDS
    while context.getExecutorMemoryStatus().size() < count + 1:  # the status includes the driver
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {count} executors registered")
        time.sleep(0.1)


def _run(spark: SparkSession, order: dict[str, Any]) -> dict[str, Any]:
    context = spark.sparkContext
    group = f"order-{time.monotonic_ns()}"
    context.setJobGroup(group, "a write")
    error = None
    try:
        _work_of(order)(spark, order)
    except Exception as failure:  # noqa: BLE001 - the test checks the error
        error = str(failure)
    stages = stages_of(context, group)
    kind = error_from_text(error) if error else None
    return {
        "number": order["number"],
        "error": error,
        "kind": str(kind.kind) if kind else None,
        "next_offsets": kind.next_offsets if kind else None,
        "failed_tasks": sum(stage.numFailedTasks for stage in stages),
        "failures": [text for stage in stages for text in _failures(context, stage)],
        "stage_attempts": 1 + max((stage.currentAttemptId for stage in stages), default=0),
    }


def _failures(context: SparkContext, stage: SparkStageInfo) -> list[str]:
    """Return the errors of the failed tasks in a stage's last attempt, from Spark's own status store."""
    tasks = context._jsc.sc().statusStore().taskList(stage.stageId, stage.currentAttemptId, 1000)
    errors = [tasks.apply(index) for index in range(tasks.size())]
    return [task.errorMessage().get() for task in errors if task.status() == "FAILED"]


def _work_of(order: dict[str, Any]) -> Callable[[SparkSession, dict[str, Any]], None]:
    if "state" in order:
        return _save_state
    if "files" in order:
        return _load_files
    return _stream if "checkpointLocation" in order["options"] else _write


def _save_state(spark: SparkSession, order: dict[str, Any]) -> None:
    """Run the program that saves a state, with the arguments of the order."""
    code = bootstrap_state.main(["--log", order["log"], *order["state"]], "bootstrap_state.py", lambda _: spark)
    if code != 0:
        raise RuntimeError(f"bootstrap_state ended with exit code {code}")


def _load_files(spark: SparkSession, order: dict[str, Any]) -> None:
    """Run the bulk load with the arguments of the order."""
    code = bulk_load.main(["--log", order["log"], *order["files"]], "bulk_load.py", lambda _: spark)
    if code != 0:
        raise RuntimeError(f"bulk_load ended with exit code {code}")


def _write(spark: SparkSession, order: dict[str, Any]) -> None:
    options = order["options"]
    frame = route(spark.read.parquet(order["input"]), {"path": order["log"], **options}, order_by=order["order_by"])
    if order["restless"]:
        frame, options = _in_other_order_each_time(frame), options | {"routed": "true"}
    frame.write.format("conditional-log").mode("append").options(**options).save(order["log"])


def _stream(spark: SparkSession, order: dict[str, Any]) -> None:
    """Run a query that reads the input in small batches, in order, and ends after the last one."""
    checkpoint = order["options"].pop("checkpointLocation")
    frame = (_log_stream if _is_log(order["input"]) else _file_stream)(spark, order)
    options = {"path": order["log"], **order["options"]}
    writer = route(frame, options).writeStream.format("conditional-log").options(**options)
    query, has_read_all = start_for_existing_records(writer.option("checkpointLocation", checkpoint))
    while not query.awaitTermination(1):
        if has_read_all():
            query.stop()


def _file_stream(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Read one file per batch, the oldest first."""
    files = spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 1)
    return files.parquet(order["input"])


def _log_stream(spark: SparkSession, order: dict[str, Any]) -> DataFrame:
    """Read a log from its start. Move the option of the source out of the options of the sink."""
    taken = order["options"].pop("maxOffsetsPerTrigger")
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": taken, "processingTime": "true"}
    records = spark.readStream.format("conditional-log").options(**options).load(order["input"])
    return records.select("key", "value")


def _is_log(address: str) -> bool:
    """Return whether the input is a log rather than a folder of files."""
    return address.startswith("kafka://") or Path(address, "_log").is_dir()


def _in_other_order_each_time(frame: DataFrame) -> DataFrame:
    """Reverse the rows in every second attempt of a task, as a shuffle without a sort may do.

    The last row is the end marker, and stays.
    """

    def turn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches)
        context = TaskContext.get()
        if context is not None and context.attemptNumber() % 2:
            table = table.take(pa.array([*range(table.num_rows - 2, -1, -1), table.num_rows - 1]))
        yield from table.combine_chunks().to_batches()

    return frame.mapInArrow(turn, frame.schema)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
