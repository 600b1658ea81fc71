"""Shared code of the drivers: a session on the cluster of a run, the options of its log, the results of errors."""

import json
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_cas import error_from_text
from spark_cas.core.errors import ConditionalLogError, FencedError, InputError, RefusedError
from tests.chaos.world import REQUEST_SECONDS, World
from tests.history.operations import FAIL, INFO

FAILURES = (ConditionalLogError, PySparkException, Py4JJavaError)
"""The errors that a write or a query may raise. Any other error, such as an exited JVM, is a defect."""
_SHOWN = 300
_REQUEST_MS = int(1000 * REQUEST_SECONDS)


def start_session(name: str, conf: str, world: World) -> SparkSession:
    """Return a session with this name and the settings in JSON.

    If the driver has no history yet, start executors and Python workers first. Otherwise the first faults would not
    find any such process.
    """
    builder = SparkSession.builder.appName(name)
    for key, value in json.loads(conf).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not world.history_of(name).exists():
        spark.read.format("conditional-log").options(**_reading(world, name)).load().count()
    return spark


def writing(world: World, client: str, job: str) -> dict[str, str]:
    """Return the options of a write, with the same timeouts as the other clients of the run."""
    options = {**_reading(world, client), "job": job, "fencedRetryWaitMs": "1000"}
    return options | ({"transactionTimeoutMs": f"{6 * _REQUEST_MS}"} if world.topic else {})


def _reading(world: World, client: str) -> dict[str, str]:
    if not world.topic:
        return {"path": world.address, **{f"store.{name}": value for name, value in world.settings}}
    return {
        "kafka.bootstrap.servers": world.address,
        "topic": world.topic,
        "idPrefix": world.topic,
        "kafka.client.id": client,
        "kafka.request.timeout.ms": f"{_REQUEST_MS}",
        "kafka.delivery.timeout.ms": f"{12 * _REQUEST_MS}",
        "openTransactionWaitMs": f"{12 * _REQUEST_MS}",
    }


def told_by(error: Exception, spark: SparkSession) -> tuple[str, dict[str, Any]]:
    """Return the result of an append that raised this error.

    If the session has ended, raise the error, because no retry can succeed.

    A fenced task attempt gives no result for the job, because the attempt that fenced it may still be running.
    """
    if spark.sparkContext._jsc.sc().isStopped():
        raise error
    ours = error if isinstance(error, ConditionalLogError) else error_from_text(str(error))
    if ours is None:
        return INFO, {"kind": "SPARK", "told": str(error)[:_SHOWN]}
    definite = isinstance(ours, RefusedError | InputError) and not isinstance(ours, FencedError)
    return (FAIL if definite else INFO), {"kind": str(ours.kind), "told": ours.message}
