"""The table of all options, from which parsing and validation are derived. tools/options.toml has their meanings."""

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.micro_batch import ORDER_COLUMNS
from spark_cas.core.plan import MOST_PARTITIONS
from spark_cas.log.kafka.settings.address import check_servers
from spark_cas.log.kafka.settings.kafka_spec import DEFAULT_PREFIX, DEFAULT_TRANSACTION_MS
from spark_cas.log.load.attempts import FENCED_RETRY_WAIT_SECONDS
from spark_cas.log.timing import RETRY_TIMEOUT_MS
from spark_cas.options.option import (
    EVERYWHERE,
    ISOLATION_LOAD,
    ONE_READ,
    READING,
    STREAMING_READ,
    VIEW_RECORDS,
    VIEWS_OF_RECORDS,
    WRITING_AND_ROUTING,
    Option,
    atomicity,
    duration_ms,
    flag,
    idempotence,
    metrics_target,
    milliseconds,
    one_of,
    one_topic,
    partitioner,
    pattern,
    seconds,
    some_of,
    text,
    topics,
    whole_number,
)
from spark_cas.options.read_range import parse_assigned, parse_offsets, parse_times

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
