"""The table of all options with the parsers of their values. tools/options.toml has their meanings.

Parser errors never contain the value, which may be secret.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar
from urllib.parse import urlsplit

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import OFF, REQUESTED, REQUIRED
from spark_cas.core.micro_batch import ORDER_COLUMNS
from spark_cas.core.partitioner import Partitioner
from spark_cas.core.plan import MOST_PARTITIONS
from spark_cas.log.kafka.settings.address import check_servers
from spark_cas.log.kafka.settings.kafka_spec import DEFAULT_PREFIX, DEFAULT_TRANSACTION_MS
from spark_cas.log.load.attempts import FENCED_RETRY_WAIT_SECONDS
from spark_cas.log.timing import MILLISECONDS_IN, RETRY_TIMEOUT_MS
from spark_cas.options.read_range import parse_assigned, parse_offsets, parse_times

_T = TypeVar("_T")
_MAX_INT = 2**31 - 1
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|min|h|d|)")


class Scope(Enum):
    """A use that accepts options."""

    READ = "read"
    READ_STREAM = "readStream"
    WRITE = "write"


EVERYWHERE = frozenset(Scope)
READING = frozenset({Scope.READ, Scope.READ_STREAM})
ONE_READ = frozenset({Scope.READ})
STREAMING_READ = frozenset({Scope.READ_STREAM})
WRITING_AND_ROUTING = frozenset({Scope.WRITE})
"""`route` takes a dict of the write's options, so that one dict serves both."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option and its parser. Its meaning is in tools/options.toml."""

    name: str
    parse: Callable[[str], object]
    """Raises ValueError with the expected form, never with the value."""
    scopes: frozenset[Scope]
    default: str | None = None
    """The text that a user would set; None for no default."""
    per_log: bool = False
    """Whether the file of per-log defaults can set it."""
    kafka_only: bool = False
    """Whether it has no meaning for a log in a directory or object store."""
    internal: bool = False
    """Whether only the package sets it. The documentation leaves it out."""


def whole_number(most: int = _MAX_INT, *, least: int = 1, expected: str = "") -> Callable[[str], int]:
    """Return a parser of whole numbers from ``least`` to ``most``."""

    def parse(text: str) -> int:
        stripped = text.strip()
        if not (stripped.isascii() and stripped.isdigit()) or not least <= int(stripped) <= most:
            raise ValueError(expected or f"a whole number from {least} to {most}")
        return int(stripped)

    return parse


milliseconds = whole_number(2**63 - 1, least=0, expected="milliseconds since 1970, such as 1767225600000")
"""Parse a time in milliseconds since 1970."""


def seconds(text: str) -> float:
    """Parse a number of seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError("a number of seconds above 0")
    return value


def word(values: Mapping[str, _T], expected: str = "") -> Callable[[str], _T]:
    """Return a parser of one of several words, each with its value. It ignores case."""

    def parse(text: str) -> _T:
        value = values.get(text.strip().lower())
        if value is None:
            raise ValueError(expected or f"one of {', '.join(values)}")
        return value

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of several words."""
    return word({each: each for each in choices})


flag = word({"true": True, "false": False}, "true or false")

ATOMIC_LOAD = "load"
ATOMIC_PARTITION = "partition"
ISOLATION_LOAD = "load"
VIEW_RECORDS, VIEW_NEWEST = "records", "newest"
VIEWS_OF_RECORDS = (VIEW_RECORDS, VIEW_NEWEST)
"""The views whose rows are records, which offsets can select. Other views describe the whole log."""

atomicity = word(
    {ATOMIC_LOAD: ATOMIC_LOAD, ATOMIC_PARTITION: ATOMIC_PARTITION, "true": ATOMIC_PARTITION, "false": "", "": ""},
    "load, partition or false",
)

DEPRECATED_IDEMPOTENCE = {"true": REQUIRED, "false": OFF}
"""The legacy values of KIP-192, and their meaning."""
_GUARANTEES = {each: each for each in (REQUIRED, REQUESTED, OFF)}
idempotence = word(_GUARANTEES | DEPRECATED_IDEMPOTENCE, f"one of {', '.join(_GUARANTEES)}")

_PARTITIONERS: dict[str, Partitioner] = {
    "murmur2": "murmur2",
    "murmur2_random": "murmur2",
    "crc32": "crc32",
    "consistent": "crc32",
    "consistent_random": "crc32",
}
"""The accepted names, including those of librdkafka."""
partitioner = word(_PARTITIONERS)


def some_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of one or more of several words, separated by commas, without duplicates."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(each.strip().lower() for each in text.split(","))
        if not set(words) <= set(choices) or len(set(words)) < len(words):
            raise ValueError(f"one or more of {', '.join(choices)}, separated by commas, each once")
        return words

    return parse


def text(value: str) -> str:
    """Return any text that is not blank."""
    if not value.strip():
        raise ValueError("not empty")
    return value


OTEL = "otel"
METRICS_FILE = "file"
"""The scheme of a metrics target that is a text file."""


def metrics_target(text: str) -> str:
    """Parse ``otel``, ``file:/path/name.prom`` or the URL of a Pushgateway."""
    expected = "otel, file:/folder/name.prom, or the URL of a Pushgateway without a user and password"
    result = text.strip()
    try:
        parts = urlsplit(result)
    except ValueError:
        raise ValueError(expected) from None  # its text has a part of the URL
    is_path = parts.path.startswith("/") and parts.path.endswith(".prom")
    is_file = parts.scheme == METRICS_FILE and is_path and not (parts.netloc or parts.query or parts.fragment)
    is_server = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    if result != OTEL and not is_file and not is_server:
        raise ValueError(expected)
    return result


def duration_ms(text: str) -> int:
    """Parse a duration such as ``15m`` to milliseconds; a bare number is milliseconds."""
    result = _DURATION.fullmatch(text.strip().lower())
    if result is None:
        raise ValueError("a time such as 500ms, 90s, 15m, 2h or 1d")
    return int(result[1]) * MILLISECONDS_IN[result[2] or "ms"]


def topics(value: str) -> tuple[str, ...]:
    """Parse topic names separated by commas, and sort them."""
    names = [each.strip() for each in value.split(",") if each.strip()]
    if not names or not all(_TOPIC.fullmatch(each) for each in names):
        raise ValueError("the name of a topic (A-Z a-z 0-9 . _ -), or several separated by commas")
    return tuple(sorted(set(names)))


def pattern(value: str) -> str:
    """Parse a regular expression."""
    stripped = value.strip()
    try:
        re.compile(stripped)
    except re.error:
        stripped = ""
    if not stripped:
        raise ValueError("a regular expression, as Python's module re knows them")
    return stripped


def one_topic(value: str) -> str:
    """Parse the name of one topic; reject lists and patterns."""
    if _TOPIC.fullmatch(value.strip()) is None:
        raise ValueError(
            "the name of one topic (A-Z a-z 0-9 . _ -), and no list or pattern: several are read with the options "
            "subscribe and subscribePattern, and written one by one"
        )
    return value.strip()


MAX_BYTES_PER_CHUNK = 64 * 1024 * 1024
"""A chunk is one PUT request, and the task builds it in memory."""

SERVERS = "kafka.bootstrap.servers"

_LIMITS = ChunkLimits()
_MOST_BATCHES = 2**63 - 1

OPTIONS: tuple[Option, ...] = (
    Option("path", text, EVERYWHERE),
    Option(SERVERS, check_servers, EVERYWHERE, kafka_only=True),
    Option("topic", one_topic, EVERYWHERE, kafka_only=True),
    Option("subscribe", topics, READING, kafka_only=True),
    Option("subscribePattern", pattern, READING, kafka_only=True),
    Option("assign", parse_assigned, READING),
    Option("job", text, WRITING_AND_ROUTING),
    Option("batchId", whole_number(_MOST_BATCHES, least=0), WRITING_AND_ROUTING),
    Option("orderBy", some_of(*ORDER_COLUMNS), WRITING_AND_ROUTING, per_log=True),
    Option("expectedOffsets", ExpectedOffsets.parse, WRITING_AND_ROUTING, default="end"),
    Option("checkExpectedOffsets", flag, WRITING_AND_ROUTING, default="true", per_log=True),
    Option("compare", one_of("partition", "key"), WRITING_AND_ROUTING, default="partition", per_log=True),
    Option("idempotence", idempotence, WRITING_AND_ROUTING, default=REQUIRED, per_log=True),
    Option("report", text, WRITING_AND_ROUTING),
    Option("metrics", metrics_target, WRITING_AND_ROUTING, per_log=True),
    Option("atomic", atomicity, WRITING_AND_ROUTING, default="false", per_log=True),
    Option("partitions", whole_number(MOST_PARTITIONS), WRITING_AND_ROUTING, per_log=True),
    Option("partitioner", partitioner, WRITING_AND_ROUTING, per_log=True),
    Option("maxRecordsPerChunk", whole_number(), WRITING_AND_ROUTING, default=str(_LIMITS.max_records), per_log=True),
    Option(
        "maxBytesPerChunk",
        whole_number(MAX_BYTES_PER_CHUNK),
        WRITING_AND_ROUTING,
        default=str(_LIMITS.max_bytes),
        per_log=True,
    ),
    Option("maxSecondsPerChunk", seconds, WRITING_AND_ROUTING, default=f"{_LIMITS.max_seconds:g}", per_log=True),
    Option("routed", flag, WRITING_AND_ROUTING, default="false"),
    # The job of `append_if_unchanged` to which the write belongs.
    Option("roundOf", text, WRITING_AND_ROUTING, internal=True),
    Option("lineage", flag, WRITING_AND_ROUTING, default="true", internal=True),
    Option(
        "fencedRetryWaitMs",
        whole_number(),
        WRITING_AND_ROUTING,
        default=f"{FENCED_RETRY_WAIT_SECONDS * 1000:.0f}",
        per_log=True,
    ),
    Option("lockWaitTimeout", duration_ms, WRITING_AND_ROUTING, per_log=True),
    Option("idPrefix", text, EVERYWHERE, default=DEFAULT_PREFIX, per_log=True, kafka_only=True),
    Option("tokenProvider", text, EVERYWHERE, per_log=True, kafka_only=True),
    Option(
        "openTransactionWaitMs",
        whole_number(),
        EVERYWHERE,
        default=str(RETRY_TIMEOUT_MS),
        per_log=True,
        kafka_only=True,
    ),
    Option(
        "transactionTimeoutMs",
        whole_number(),
        WRITING_AND_ROUTING,
        default=str(DEFAULT_TRANSACTION_MS),
        per_log=True,
        kafka_only=True,
    ),
    Option("startingOffsets", parse_offsets, READING),
    Option("startingTimestamp", milliseconds, READING),
    Option("startingOffsetsByTimestamp", parse_times, READING),
    Option("startingOffsetsByTimestampStrategy", one_of("error", "latest"), READING, default="error"),
    Option("endingOffsets", parse_offsets, ONE_READ, default="latest"),
    Option("endingTimestamp", milliseconds, ONE_READ),
    Option("endingOffsetsByTimestamp", parse_times, ONE_READ),
    Option("minPartitions", whole_number(), READING, per_log=True),
    Option("maxRecordsPerPartition", whole_number(2**63 - 1), READING, per_log=True),
    Option("maxOffsetsPerTrigger", whole_number(2**63 - 1), STREAMING_READ, per_log=True),
    Option("isolation", one_of("partition", ISOLATION_LOAD), STREAMING_READ, default="partition", per_log=True),
    Option("minOffsetsPerTrigger", whole_number(2**63 - 1), STREAMING_READ, per_log=True),
    Option("maxTriggerDelay", duration_ms, STREAMING_READ, default="15m", per_log=True),
    Option("failOnDataLoss", flag, READING, default="true", per_log=True),
    Option("commitGroup", text, STREAMING_READ, kafka_only=True),
    Option("allowUnsubscribedTopics", flag, STREAMING_READ, default="false"),
    Option("processingTime", flag, STREAMING_READ, default="false"),
    Option("includeHeaders", flag, READING, default="false", per_log=True),
    # The expected id of the log. If it differs, or the log ends before a named offset, the read fails.
    Option("logId", text, ONE_READ, internal=True),
    Option("view", one_of(*VIEWS_OF_RECORDS, "offsets", "progress"), ONE_READ, default=VIEW_RECORDS),
    Option("conf", text, EVERYWHERE),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}
"""All options by name in lower case, as Spark passes them."""
