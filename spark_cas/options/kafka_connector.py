"""A comparison with Spark's own Kafka connector (4.2), option by option."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from spark_cas.log.kafka.settings.client_settings import UNUSED_BY_NAME
from spark_cas.options.option import READING, Scope


class Verdict(Enum):
    """The handling of an option of Spark's connector."""

    SAME = "same"
    DIFFERENT = "different"
    NO_EFFECT = "no effect, with the reason in the log"
    REFUSED = "refused, with the reason in the error"


@dataclass(frozen=True, slots=True)
class SparkOption:
    """An option of Spark's Kafka source or sink."""

    name: str
    verdict: Verdict
    note: str
    """The difference, the replacement, or the reason for the rejection and the fix."""


_SAME, _DIFFERENT, _NO_EFFECT, _REFUSED = Verdict

_NO_GROUP = UNUSED_BY_NAME["group.id"].instead
_READ_BYTES = "A read returns keys and values as binary. Cast the column."
_WRITTEN_BYTES = "A write takes keys and values as binary or string. Cast the column."
_PATIENCE = UNUSED_BY_NAME["default.api.timeout.ms"].instead

SOURCE: tuple[SparkOption, ...] = (
    SparkOption("kafka.bootstrap.servers", _SAME, ""),
    SparkOption("subscribe", _SAME, ""),
    SparkOption(
        "subscribePattern",
        _DIFFERENT,
        "Use Python's syntax, not Java's. The registry topics never match.",
    ),
    SparkOption("assign", _SAME, ""),
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
        "Even with `false`, a read fails if a topic was recreated or lost records at its end. For fewer topics, set "
        "`allowUnsubscribedTopics`.",
    ),
    SparkOption("minPartitions", _DIFFERENT, "A read never has fewer tasks, unless it has fewer offsets."),
    SparkOption("maxRecordsPerPartition", _SAME, ""),
    SparkOption("includeHeaders", _SAME, ""),
    SparkOption(
        "maxOffsetsPerTrigger",
        _DIFFERENT,
        "A micro-batch never exceeds it. Spark's own source reads at least one offset of each partition.",
    ),
    SparkOption("minOffsetsPerTrigger", _DIFFERENT, "`availableNow` ignores it, and reads all records."),
    SparkOption("maxTriggerDelay", _SAME, ""),
    SparkOption("groupIdPrefix", _NO_EFFECT, _NO_GROUP),
    SparkOption("kafka.group.id", _NO_EFFECT, _NO_GROUP),
    SparkOption("kafkaConsumer.pollTimeoutMs", _NO_EFFECT, _PATIENCE),
    SparkOption("fetchOffset.numRetries", _NO_EFFECT, _PATIENCE),
    SparkOption("fetchOffset.retryIntervalMs", _NO_EFFECT, _PATIENCE),
    SparkOption("kafka.auto.offset.reset", _REFUSED, "Use `startingOffsets` and `failOnDataLoss`."),
    SparkOption("kafka.key.deserializer", _REFUSED, _READ_BYTES),
    SparkOption("kafka.value.deserializer", _REFUSED, _READ_BYTES),
    SparkOption("kafka.enable.auto.commit", _REFUSED, "A read commits no offsets."),
    SparkOption("kafka.interceptor.classes", _REFUSED, "The client runs no Java."),
    SparkOption(
        "kafka.isolation.level",
        _NO_EFFECT,
        "Reads return only committed records. Leave it out, or set `read_committed`.",
    ),
)
"""Options of ``spark.read.format("kafka")`` and ``spark.readStream.format("kafka")``."""

SINK: tuple[SparkOption, ...] = (
    SparkOption("kafka.bootstrap.servers", _SAME, ""),
    SparkOption("topic", _DIFFERENT, "A stream requires it. A batch write overrides the column `topic` with it."),
    SparkOption("includeHeaders", _NO_EFFECT, "A write stores the column `headers` if there is one."),
    SparkOption("kafka.key.serializer", _REFUSED, _WRITTEN_BYTES),
    SparkOption("kafka.value.serializer", _REFUSED, _WRITTEN_BYTES),
    SparkOption("kafka.partitioner.class", _REFUSED, "Use the option `partitioner`."),
)
"""Options of ``df.write.format("kafka")`` and ``df.writeStream.format("kafka")``."""

COLUMNS: tuple[SparkOption, ...] = (
    SparkOption("key", _DIFFERENT, "It is required. For records without a key, use `lit(None).cast('binary')`."),
    SparkOption("value", _SAME, ""),
    SparkOption("headers", _DIFFERENT, "A write stores it without `includeHeaders`."),
    SparkOption("topic", _DIFFERENT, "Pass the rows and the options of the write to `route`. A stream ignores it."),
    SparkOption(
        "partition",
        _DIFFERENT,
        "It is required. `route` adds it, and `route(..., by='partition')` keeps existing numbers.",
    ),
)
"""Columns of Spark's sink. This package also writes a column ``timestamp``, which Spark's sink does not know."""

_OWN_CLIENTS = "Python workers have their own clients."

APPLICATION: tuple[SparkOption, ...] = (
    SparkOption("spark.kafka.consumer.cache.*", _NO_EFFECT, _OWN_CLIENTS),
    SparkOption("spark.kafka.consumer.fetchedData.cache.*", _NO_EFFECT, _OWN_CLIENTS),
    SparkOption("spark.kafka.producer.cache.*", _NO_EFFECT, _OWN_CLIENTS),
    SparkOption(
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching",
        _NO_EFFECT,
        "As with `false`, a read needs `Describe` on the topic.",
    ),
    SparkOption(
        "spark.kafka.clusters.*, spark.security.credentials.kafka.enabled",
        _NO_EFFECT,
        "There are no delegation tokens. Use `kafka.sasl.*`, with secrets by reference.",
    ),
)
"""Settings of the Spark application that Spark's connector reads."""

_REFUSALS = {each.name.lower(): each.note for each in (*SOURCE, *SINK) if each.verdict is Verdict.REFUSED}


def _unused(options: Iterable[SparkOption]) -> dict[str, str]:
    """Return the options without an effect, except client settings (`UNUSED_BY_NAME`)."""
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
