"""A comparison with Spark's own Kafka connector (4.2), option by option, for docs/options.md."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_cas.log.kafka.settings.client_settings import UNUSED_BY_NAME
from spark_cas.options.option_values import REFUSED_SINK, REFUSED_SOURCE, UNUSED_SINK, UNUSED_SOURCE


class Verdict(Enum):
    """The handling of an option of Spark's connector."""

    SAME = "same"
    DIFFERENT = "different"
    NO_EFFECT = "no effect, with the reason in the log"
    REFUSED = "rejected, with the reason in the error"


@dataclass(frozen=True, slots=True)
class SparkOption:
    """An option of Spark's Kafka source or sink."""

    name: str
    verdict: Verdict
    note: str
    """The difference, the replacement, or the reason for the rejection and the fix."""
    value: str = ""
    """The only accepted value; empty if there is no such limit."""

    @property
    def text(self) -> str:
        """Return the name, with the only accepted value if there is one."""
        return f"{self.name}={self.value}" if self.value else self.name


def _options(verdict: Verdict, notes: Mapping[str, str]) -> Iterator[SparkOption]:
    return (SparkOption(name, verdict, note) for name, note in notes.items())


def _same(*names: str) -> Iterator[SparkOption]:
    return _options(Verdict.SAME, dict.fromkeys(names, ""))


SOURCE: tuple[SparkOption, ...] = (
    *_same("kafka.bootstrap.servers", "subscribe", "assign", "startingTimestamp", "startingOffsetsByTimestamp"),
    *_same("startingOffsetsByTimestampStrategy", "endingTimestamp", "endingOffsetsByTimestamp"),
    *_same("maxRecordsPerPartition", "includeHeaders", "maxTriggerDelay"),
    *_options(
        Verdict.DIFFERENT,
        {
            "subscribePattern": "Use Python's syntax, not Java's. The registry topics never match.",
            "startingOffsets": "A read also accepts `latest`, and returns no rows.",
            "endingOffsets": "A read also accepts `earliest` and -2, and returns no rows.",
            "failOnDataLoss": "Even with `false`, a read fails if a topic was recreated or lost records at its end. "
            "For fewer topics, set `allowUnsubscribedTopics`.",
            "minPartitions": "A read never has fewer tasks, unless it has fewer offsets.",
            "maxOffsetsPerTrigger": "A micro-batch never exceeds it. Spark's own source reads at least one offset of "
            "each partition.",
            "minOffsetsPerTrigger": "`availableNow` ignores it, and reads all records.",
        },
    ),
    *_options(
        Verdict.NO_EFFECT,
        {
            "groupIdPrefix": UNUSED_SOURCE["groupIdPrefix"],
            "kafka.group.id": UNUSED_BY_NAME["group.id"].instead,
            **UNUSED_SOURCE,
        },
    ),
    SparkOption(
        "kafka.isolation.level", Verdict.NO_EFFECT, "Reads return only committed records.", value="read_committed"
    ),
    *_options(Verdict.REFUSED, REFUSED_SOURCE),
)
"""Options of ``spark.read.format("kafka")`` and ``spark.readStream.format("kafka")``."""

SINK: tuple[SparkOption, ...] = (
    *_same("kafka.bootstrap.servers"),
    *_options(
        Verdict.DIFFERENT,
        {"topic": "A stream requires it. A batch write overrides the column `topic` with it."},
    ),
    *_options(Verdict.NO_EFFECT, UNUSED_SINK),
    *_options(Verdict.REFUSED, REFUSED_SINK),
)
"""Options of ``df.write.format("kafka")`` and ``df.writeStream.format("kafka")``."""

COLUMNS: tuple[SparkOption, ...] = (
    SparkOption(
        "key", Verdict.DIFFERENT, "It is required. For records without a key, use `lit(None).cast('binary')`."
    ),
    SparkOption("value", Verdict.SAME, ""),
    SparkOption("headers", Verdict.DIFFERENT, "A write stores it without `includeHeaders`."),
    SparkOption(
        "topic", Verdict.DIFFERENT, "Pass the rows and the options of the write to `route`. A stream ignores it."
    ),
    SparkOption(
        "partition",
        Verdict.DIFFERENT,
        "It is required. `route` adds it, and `route(..., by='partition')` keeps existing numbers.",
    ),
)
"""Columns of Spark's sink. This package also writes a column ``timestamp``, which Spark's sink does not know."""

_OWN_CLIENTS = "Python workers have their own clients."

APPLICATION: tuple[SparkOption, ...] = (
    SparkOption("spark.kafka.consumer.cache.*", Verdict.NO_EFFECT, _OWN_CLIENTS),
    SparkOption("spark.kafka.consumer.fetchedData.cache.*", Verdict.NO_EFFECT, _OWN_CLIENTS),
    SparkOption("spark.kafka.producer.cache.*", Verdict.NO_EFFECT, _OWN_CLIENTS),
    SparkOption(
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching",
        Verdict.NO_EFFECT,
        "As with `false`, a read needs `Describe` on the topic.",
    ),
    SparkOption(
        "spark.kafka.clusters.*, spark.security.credentials.kafka.enabled",
        Verdict.NO_EFFECT,
        "There are no delegation tokens. Use `kafka.sasl.*`, with secrets by reference.",
    ),
)
"""Settings of the Spark application that Spark's connector reads."""
