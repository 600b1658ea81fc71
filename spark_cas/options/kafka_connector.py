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


def _alike(verdict: Verdict, note: str, *names: str) -> list[SparkOption]:
    return [SparkOption(each, verdict, note) for each in names]


_READ_BYTES = "A read returns keys and values as binary. Cast the column."
_WRITTEN_BYTES = "A write takes keys and values as binary or string. Cast the column."
_PATIENCE = UNUSED_BY_NAME["default.api.timeout.ms"].instead

SOURCE: tuple[SparkOption, ...] = (
    *_alike(
        _SAME,
        "",
        "kafka.bootstrap.servers",
        "subscribe",
        "assign",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "maxRecordsPerPartition",
        "includeHeaders",
        "maxTriggerDelay",
    ),
    SparkOption("subscribePattern", _DIFFERENT, "Use Python's syntax, not Java's. The registry topics never match."),
    SparkOption("startingOffsets", _DIFFERENT, "A read also accepts `latest`, and returns no rows."),
    SparkOption("endingOffsets", _DIFFERENT, "A read also accepts `earliest` and -2, and returns no rows."),
    SparkOption(
        "failOnDataLoss",
        _DIFFERENT,
        "Even with `false`, a read fails if a topic was recreated or lost records at its end. For fewer topics, set "
        "`allowUnsubscribedTopics`.",
    ),
    SparkOption("minPartitions", _DIFFERENT, "A read never has fewer tasks, unless it has fewer offsets."),
    SparkOption(
        "maxOffsetsPerTrigger",
        _DIFFERENT,
        "A micro-batch never exceeds it. Spark's own source reads at least one offset of each partition.",
    ),
    SparkOption("minOffsetsPerTrigger", _DIFFERENT, "`availableNow` ignores it, and reads all records."),
    *_alike(_NO_EFFECT, UNUSED_BY_NAME["group.id"].instead, "groupIdPrefix", "kafka.group.id"),
    *_alike(
        _NO_EFFECT, _PATIENCE, "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"
    ),
    SparkOption("kafka.auto.offset.reset", _REFUSED, "Use `startingOffsets` and `failOnDataLoss`."),
    *_alike(_REFUSED, _READ_BYTES, "kafka.key.deserializer", "kafka.value.deserializer"),
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
    *_alike(_SAME, "", "kafka.bootstrap.servers"),
    SparkOption("topic", _DIFFERENT, "A stream requires it. A batch write overrides the column `topic` with it."),
    SparkOption("includeHeaders", _NO_EFFECT, "A write stores the column `headers` if there is one."),
    *_alike(_REFUSED, _WRITTEN_BYTES, "kafka.key.serializer", "kafka.value.serializer"),
    SparkOption("kafka.partitioner.class", _REFUSED, "Use the option `partitioner`."),
)
"""Options of ``df.write.format("kafka")`` and ``df.writeStream.format("kafka")``."""

REFUSALS = {each.name.lower(): each.note for each in (*SOURCE, *SINK) if each.verdict is Verdict.REFUSED}
"""Why this package rejects an option of Spark's connector, and the fix, by name in lower case."""


def _unused(options: Iterable[SparkOption]) -> dict[str, str]:
    """Return the options without an effect, except client settings (`spark_cas.log.kafka.settings.unused`)."""
    unused = [each for each in options if each.verdict is Verdict.NO_EFFECT]
    return {each.name.lower(): each.note for each in unused if not each.name.startswith("kafka.")}


_UNUSED_SOURCE, _UNUSED_SINK = _unused(SOURCE), _unused(SINK)

_LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_UNUSED_BATCH = {each.lower(): "It limits the micro-batches of a stream. This read has none." for each in _LIMITS}
"""Options of streams that Spark's source also accepts in a batch read, with a warning."""


def unused_by(*scopes: Scope) -> dict[str, str]:
    """Return the options of Spark's connector that have no effect in the scopes.

    Returns:
        The replacement of each option, by name in lower case.
    """
    if not READING.issuperset(scopes):
        return _UNUSED_SOURCE | _UNUSED_SINK
    return _UNUSED_SOURCE if Scope.READ_STREAM in scopes else _UNUSED_SOURCE | _UNUSED_BATCH
