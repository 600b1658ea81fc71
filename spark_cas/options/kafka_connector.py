"""A comparison with Spark's own Kafka connector (4.2), option by option."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from spark_cas.log.kafka.settings.unused import UNUSED_BY_NAME
from spark_cas.options.option import READING, Scope


class Verdict(Enum):
    """The handling of an option of Spark's connector."""

    SAME = "same"
    DIFFERENT = "different"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SparkOption:
    """An option of Spark's Kafka source or sink."""

    name: str
    verdict: Verdict
    note: str
    """The difference, the replacement, or the reason for the rejection and the fix."""


_SAME, _DIFFERENT, _NO_EFFECT, _REFUSED = Verdict

_NO_GROUP = UNUSED_BY_NAME["group.id"].instead
_PATIENCE = UNUSED_BY_NAME["default.api.timeout.ms"].instead

SOURCE: tuple[SparkOption, ...] = (
    SparkOption("kafka.bootstrap.servers", _SAME, ""),
    SparkOption("subscribe", _SAME, ""),
    SparkOption(
        "subscribePattern",
        _DIFFERENT,
        "The syntax is that of Python's module re, not Java's. The registry topics never match.",
    ),
    SparkOption("assign", _SAME, "It also works with `path`."),
    SparkOption("startingTimestamp", _SAME, ""),
    SparkOption("startingOffsetsByTimestamp", _SAME, ""),
    SparkOption("startingOffsetsByTimestampStrategy", _SAME, ""),
    SparkOption("startingOffsets", _DIFFERENT, "A read also accepts `latest`, and returns no rows."),
    SparkOption("endingTimestamp", _SAME, ""),
    SparkOption("endingOffsetsByTimestamp", _SAME, ""),
    SparkOption("endingOffsets", _DIFFERENT, "A read also accepts `earliest` and -2, and returns no rows."),
    SparkOption(
        "failOnDataLoss",
        _DIFFERENT,
        "It covers records that retention removed, and topics that no longer exist. A topic that was deleted and "
        "recreated, or that lost records at its end, always fails. A stream that subscribes to fewer topics needs "
        "`allowUnsubscribedTopics`.",
    ),
    SparkOption("minPartitions", _DIFFERENT, "If there are as many offsets, there are never fewer tasks."),
    SparkOption("maxRecordsPerPartition", _SAME, ""),
    SparkOption("includeHeaders", _SAME, ""),
    SparkOption(
        "maxOffsetsPerTrigger",
        _DIFFERENT,
        "It is never exceeded. If it is below the number of partitions with new offsets, they take turns. Spark's "
        "own source takes at least one offset of each.",
    ),
    SparkOption("minOffsetsPerTrigger", _DIFFERENT, "`Trigger.AvailableNow` ignores it, and reads everything."),
    SparkOption("maxTriggerDelay", _SAME, ""),
    SparkOption("groupIdPrefix", _NO_EFFECT, f"{_NO_GROUP} The names that a write uses begin with option idPrefix."),
    SparkOption("kafka.group.id", _NO_EFFECT, _NO_GROUP),
    SparkOption("kafkaConsumer.pollTimeoutMs", _NO_EFFECT, _PATIENCE),
    SparkOption("fetchOffset.numRetries", _NO_EFFECT, _PATIENCE),
    SparkOption("fetchOffset.retryIntervalMs", _NO_EFFECT, _PATIENCE),
    SparkOption("kafka.auto.offset.reset", _REFUSED, "Use `startingOffsets` and `failOnDataLoss`."),
    SparkOption("kafka.key.deserializer", _REFUSED, "Keys are read as binary; cast the column."),
    SparkOption("kafka.value.deserializer", _REFUSED, "Values are read as binary; cast the column."),
    SparkOption("kafka.enable.auto.commit", _REFUSED, "A read commits no offsets."),
    SparkOption("kafka.interceptor.classes", _REFUSED, "The client runs no Java."),
    SparkOption(
        "kafka.isolation.level",
        _NO_EFFECT,
        "Reads return only committed records. The only accepted value is `read_committed`.",
    ),
)
"""Options of ``spark.read.format("kafka")`` and ``spark.readStream.format("kafka")``."""

SINK: tuple[SparkOption, ...] = (
    SparkOption("kafka.bootstrap.servers", _SAME, ""),
    SparkOption("topic", _DIFFERENT, "A stream requires it. A batch write overrides the column `topic` with it."),
    SparkOption("includeHeaders", _NO_EFFECT, "If the frame has a column headers, it is written."),
    SparkOption("kafka.key.serializer", _REFUSED, "Keys are written as they are; cast the column."),
    SparkOption("kafka.value.serializer", _REFUSED, "Values are written as they are; cast the column."),
    SparkOption("kafka.partitioner.class", _REFUSED, "Use option `partitioner`, which `route` takes."),
)
"""Options of ``df.write.format("kafka")`` and ``df.writeStream.format("kafka")``."""

COLUMNS: tuple[SparkOption, ...] = (
    SparkOption("key", _DIFFERENT, "It is required. For records without a key, use `lit(None).cast('binary')`."),
    SparkOption("value", _SAME, ""),
    SparkOption("headers", _DIFFERENT, "If the frame has it, it is written, without `includeHeaders`."),
    SparkOption("topic", _DIFFERENT, "Pass the rows and the options of the write to `route`. A stream ignores it."),
    SparkOption(
        "partition",
        _DIFFERENT,
        "It is required in each row. `route` adds it, and `route(..., by='partition')` keeps existing numbers.",
    ),
)
"""Columns of Spark's sink. This package also writes a column ``timestamp``, which Spark's sink does not know."""

_OWN_CLIENTS = "It has no effect: the workers of tasks have their own clients, outside the JVM."

APPLICATION: tuple[SparkOption, ...] = (
    SparkOption("spark.kafka.consumer.cache.*", _DIFFERENT, _OWN_CLIENTS),
    SparkOption("spark.kafka.consumer.fetchedData.cache.*", _DIFFERENT, _OWN_CLIENTS),
    SparkOption("spark.kafka.producer.cache.*", _DIFFERENT, _OWN_CLIENTS),
    SparkOption(
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching",
        _DIFFERENT,
        "It has no effect: offsets are requested as if it were false, which needs the ACL `Describe` on the topic.",
    ),
    SparkOption(
        "spark.kafka.clusters.*, spark.security.credentials.kafka.enabled",
        _DIFFERENT,
        "They have no effect: there are no delegation tokens. Give `kafka.sasl.*`, with secrets by reference.",
    ),
)
"""Settings of the Spark application that Spark's connector reads."""

_REFUSALS = {each.name.lower(): each.note for each in (*SOURCE, *SINK) if each.verdict is Verdict.REFUSED}


def _unused(options: Iterable[SparkOption]) -> dict[str, str]:
    """Return the options without an effect, except client settings (`spark_cas.log.kafka.settings.unused`)."""
    unused = [each for each in options if each.verdict is Verdict.NO_EFFECT]
    return {each.name.lower(): each.note for each in unused if not each.name.startswith("kafka.")}


_UNUSED_SOURCE, _UNUSED_SINK = _unused(SOURCE), _unused(SINK)

_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_UNUSED_BATCH = {each.lower(): "It limits the micro-batches of a stream. This read has none." for each in _LIMITS}
"""Options of streams that Spark's source also accepts in a batch read, with a warning."""


def refusal_of(key: str) -> str | None:
    """Return why this package rejects an option of Spark's connector, and the fix; None for any other option.

    Args:
        key: The name of the option in lower case.
    """
    return _REFUSALS.get(key)


def unused_by(*scopes: Scope) -> dict[str, str]:
    """Return the options of Spark's connector that have no effect in the scopes.

    Returns:
        The replacement of each option, by name in lower case.
    """
    if not READING.issuperset(scopes):
        return _UNUSED_SOURCE | _UNUSED_SINK
    return _UNUSED_SOURCE if Scope.READ_STREAM in scopes else _UNUSED_SOURCE | _UNUSED_BATCH
