"""Metrics of streaming queries: ``spark.streams.addListener(spark_cas.metrics.QueryMetrics("otel"))``."""

from collections.abc import Iterator
from itertools import groupby

from spark_cas.core.errors import FormatError, OptionError
from spark_cas.options.publish_metrics import Measurement, publish
from spark_cas.options.table import metrics_target
from spark_cas.spark.supported import require_pyspark

with require_pyspark():
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
        StreamingQueryProgress,
    )

    from spark_cas.spark.reading.stream_offsets import stream_lag

__all__ = ["QueryMetrics"]


class QueryMetrics(StreamingQueryListener):
    """A listener that publishes the metrics of all streaming queries of a session after each micro-batch.

    For each query: the records that it read, and the duration of each phase. For each topic or log that it reads with
    ``conditional-log``: the lag in offsets, in the least and most delayed partition and on average. The label ``job``
    is the name of the query, or its id if it has no name.

    It also works with Spark Connect. There it runs in the client.

    Args:
        target: As in the option ``metrics``: ``file:/folder/name.prom``, the URL of a Pushgateway, or ``otel``.

    Raises:
        OptionError: The target is invalid.
    """

    def __init__(self, target: str) -> None:
        try:
            self._target = metrics_target(target)
        except ValueError as expected:
            raise OptionError(f"the target of QueryMetrics must be {expected}.") from None

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        publish(self._target, list(_measurements(event.progress)))

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...


def _measurements(progress: StreamingQueryProgress) -> Iterator[Measurement]:
    labels = {"job": progress.name or str(progress.id)}
    yield Measurement("query.numInputRows", progress.numInputRows, labels)
    for phase, milliseconds in progress.durationMs.items():
        yield Measurement("query.seconds", milliseconds / 1000, {**labels, "phase": phase})
    for source in progress.sources:
        try:
            lag = stream_lag(source)
        except (FormatError, ValueError, SyntaxError):
            continue  # another source of Spark
        for topic, group in groupby(lag.items(), lambda each: each[0].topic):
            counts = [count for _, count in group]
            values = {"min": min(counts), "max": max(counts), "avg": sum(counts) / len(counts)}
            for name, value in values.items():
                yield Measurement(f"query.{name}OffsetsBehindLatest", value, {**labels, "topic": topic})
