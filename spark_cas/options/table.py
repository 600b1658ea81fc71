"""The table of all options, from which parsing, validation and documentation are derived."""

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
    Option(
        "path",
        text,
        EVERYWHERE,
        doc="The log: a directory, an object store ([addresses](object-store.md#addresses)), or a topic as "
        "`kafka://host:9092/flights`. `load(path)`, `save(path)` and SQL's `WITH (path='...')` set it.",
    ),
    Option(
        SERVERS,
        check_servers,
        EVERYWHERE,
        kafka_only=True,
        doc="The brokers, such as `host:9092,host2:9092`, with a topic instead of `path`.",
    ),
    Option(
        "topic",
        one_topic,
        EVERYWHERE,
        kafka_only=True,
        doc="The topic. Without it, a batch write uses the column `topic`: [several "
        "topics](kafka-quickstart.md#write-to-several-topics).",
    ),
    Option(
        "subscribe",
        topics,
        READING,
        kafka_only=True,
        doc="The topics to read, separated by commas. Set only one of `topic`, `subscribe`, `subscribePattern` and "
        "`assign`.",
    ),
    Option(
        "subscribePattern",
        pattern,
        READING,
        kafka_only=True,
        doc="A Python regular expression for the whole names of topics. A stream also reads new ones.",
    ),
    Option(
        "assign",
        parse_assigned,
        READING,
        doc='The partitions to read, such as `{"flights": [0, 1]}`. With `path`, the topic is the last part of the '
        "path.",
    ),
    Option(
        "job",
        text,
        WRITING_AND_ROUTING,
        doc="The [name of the load](loading.md#jobs-and-reruns): a rerun appends only the missing rows, and without "
        "it all rows. The default of a stream is the id of the query.",
    ),
    Option(
        "batchId",
        whole_number(_MOST_BATCHES, least=0),
        WRITING_AND_ROUTING,
        doc="The batch number in [`foreachBatch`](streams.md#foreachbatch). It requires `job`.",
    ),
    Option(
        "orderBy",
        some_of(*ORDER_COLUMNS),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The columns that sort the rows of a micro-batch (`key`, `timestamp`, `value`), such as `key,timestamp`, "
        "which permits [several chunks](streams.md#a-batch-larger-than-a-chunk). In a load, use "
        "`route(order_by=...)`.",
    ),
    Option(
        "expectedOffsets",
        ExpectedOffsets.parse,
        WRITING_AND_ROUTING,
        default="end",
        doc="The [expected end offset](condition-partition.md) of each partition: `end` (when Spark plans the "
        'write), `none` (no check; the default of a [stream](streams.md#other-writers)), or JSON such as `{"0": '
        '17, "3": null}` (null: no check; others: `end`). For [several '
        "topics](kafka-quickstart.md#write-to-several-topics), the JSON is by topic.",
    ),
    Option(
        "checkExpectedOffsets",
        flag,
        WRITING_AND_ROUTING,
        default="true",
        per_log=True,
        doc="`false` disables all conditions, and rejects the column `expected_offset`.",
    ),
    Option(
        "compare",
        one_of("partition", "key"),
        WRITING_AND_ROUTING,
        default="partition",
        per_log=True,
        doc="`key`: an expected offset applies to the records of one [key](condition-key.md), not of the partition.",
    ),
    Option(
        "idempotence",
        idempotence,
        WRITING_AND_ROUTING,
        default=REQUIRED,
        per_log=True,
        doc="The [guarantee](guarantees.md#levels-of-guarantee): `required` (exactly once, or an error), `requested` "
        "(the best that rights and brokers permit) or `off` (at least once). `true` and `false` are deprecated.",
    ),
    Option(
        "report",
        text,
        WRITING_AND_ROUTING,
        doc="A file on the driver's machine for the [result](result.md) of a complete load, as JSON.",
    ),
    Option(
        "metrics",
        metrics_target,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="Where a write publishes its [metrics](metrics.md): `file:/folder/name.prom`, the URL of a Pushgateway, "
        "or `otel`.",
    ),
    Option(
        "atomic",
        atomicity,
        WRITING_AND_ROUTING,
        default="false",
        per_log=True,
        doc="`load`: all rows become visible [in one step](atomic-loads.md). `partition` (or `true`): all "
        "rows of a partition are one chunk, or the write fails.",
    ),
    Option(
        "partitions",
        whole_number(MOST_PARTITIONS),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The partition count of a log that the write may create. For an existing log, it must be the present "
        "count or an earlier one; in the file of defaults it is ignored.",
    ),
    Option(
        "partitioner",
        partitioner,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How `route` assigns keys to [partitions](kafka.md#partitioners): `murmur2` (Kafka's Java client, the "
        "default) or `crc32` (librdkafka). The log records the first explicit value.",
    ),
    Option(
        "maxRecordsPerChunk",
        whole_number(),
        WRITING_AND_ROUTING,
        default=str(_LIMITS.max_records),
        per_log=True,
        doc="The maximum number of records in a chunk: one atomic append to one partition.",
    ),
    Option(
        "maxBytesPerChunk",
        whole_number(MAX_BYTES_PER_CHUNK),
        WRITING_AND_ROUTING,
        default=str(_LIMITS.max_bytes),
        per_log=True,
        doc="The maximum size of a chunk in bytes, at most 67108864. A larger record is rejected.",
    ),
    Option(
        "maxSecondsPerChunk",
        seconds,
        WRITING_AND_ROUTING,
        default=f"{_LIMITS.max_seconds:g}",
        per_log=True,
        doc="The maximum age of a chunk in seconds, checked when its next rows arrive.",
    ),
    Option(
        "routed",
        flag,
        WRITING_AND_ROUTING,
        default="false",
        doc="`true`: your own query moves all rows of a partition into one task. The write checks this.",
    ),
    Option(
        "roundOf",
        text,
        WRITING_AND_ROUTING,
        doc="The job of `append_if_unchanged` to which the write belongs.",
        internal=True,
    ),
    Option("lineage", flag, WRITING_AND_ROUTING, default="true", internal=True, doc="Events of OpenLineage."),
    Option(
        "fencedRetryWaitMs",
        whole_number(),
        WRITING_AND_ROUTING,
        default=f"{FENCED_RETRY_WAIT_SECONDS * 1000:.0f}",
        per_log=True,
        doc="How long a fenced task attempt waits for its successor to make progress.",
    ),
    Option(
        "lockWaitTimeout",
        duration_ms,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long a load waits for the [load lock](conditions.md#two-loads-at-once), such as `30m`. The "
        "default is `1h`, and `0s` (fail at once) if `expectedOffsets` names offsets.",
    ),
    Option(
        "idPrefix",
        text,
        EVERYWHERE,
        default=DEFAULT_PREFIX,
        per_log=True,
        kafka_only=True,
        doc="The prefix of transactional ids, ledger groups and registry topics, for [ACLs](kafka.md#acls). All "
        "writers of a topic need the same prefix, and its readers if partitions were added or loads are atomic.",
    ),
    Option(
        "tokenProvider",
        text,
        EVERYWHERE,
        per_log=True,
        kafka_only=True,
        doc="The [function that returns tokens](authentication.md#tokens-from-a-function) for "
        "`kafka.sasl.mechanism=OAUTHBEARER`, as `package.module:function`.",
    ),
    Option(
        "openTransactionWaitMs",
        whole_number(),
        EVERYWHERE,
        default=str(RETRY_TIMEOUT_MS),
        per_log=True,
        kafka_only=True,
        doc="How long a write or a read waits for an open transaction of another producer.",
    ),
    Option(
        "transactionTimeoutMs",
        whole_number(),
        WRITING_AND_ROUTING,
        default=str(DEFAULT_TRANSACTION_MS),
        per_log=True,
        kafka_only=True,
        doc="The timeout of a Kafka transaction. If a writer dies within a chunk, readers wait up to this time.",
    ),
    Option(
        "startingOffsets",
        parse_offsets,
        READING,
        doc="The first offsets: `earliest` (default), `latest` (default of a stream), or JSON that names each "
        'partition, such as `{"flights": {"0": 23, "1": -2}}` (-2: earliest, -1: latest).',
    ),
    Option(
        "startingTimestamp",
        milliseconds,
        READING,
        doc="Start at the [first record with this timestamp](pyspark.md#read-by-offset-or-time) or a later one, in "
        "milliseconds since 1970. It overrides `startingOffsetsByTimestamp`, which overrides `startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        parse_times,
        READING,
        doc='The same for each partition, such as `{"flights": {"0": 1767225600000}}`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        READING,
        default="error",
        doc="If a partition has no record from the starting timestamp on: `error` fails, `latest` starts at its end.",
    ),
    Option(
        "endingOffsets",
        parse_offsets,
        ONE_READ,
        default="latest",
        doc="The offsets at which the read ends, exclusive, as in `startingOffsets`.",
    ),
    Option(
        "endingTimestamp",
        milliseconds,
        ONE_READ,
        doc="End before the first record with this timestamp or a later one. It overrides `endingOffsetsByTimestamp`,"
        " which overrides `endingOffsets`.",
    ),
    Option("endingOffsetsByTimestamp", parse_times, ONE_READ, doc="The same for each partition."),
    Option(
        "minPartitions",
        whole_number(),
        READING,
        per_log=True,
        doc="The minimum number of tasks, if the read has as many offsets. By default, each partition has a task; of "
        "more than 32, small ones share tasks.",
    ),
    Option(
        "maxRecordsPerPartition",
        whole_number(2**63 - 1),
        READING,
        per_log=True,
        doc="The maximum number of offsets of a task.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        whole_number(2**63 - 1),
        STREAMING_READ,
        per_log=True,
        doc="The maximum number of offsets in a micro-batch. The partitions [share it](streams.md#read-a-stream).",
    ),
    Option(
        "isolation",
        one_of("partition", ISOLATION_LOAD),
        STREAMING_READ,
        default="partition",
        per_log=True,
        doc="`load`: no micro-batch ends within an [atomic load](streams.md#atomic-loads-and-streams).",
    ),
    Option(
        "minOffsetsPerTrigger",
        whole_number(2**63 - 1),
        STREAMING_READ,
        per_log=True,
        doc="A micro-batch waits for this number of new offsets, or until `maxTriggerDelay` is over.",
    ),
    Option(
        "maxTriggerDelay",
        duration_ms,
        STREAMING_READ,
        default="15m",
        per_log=True,
        doc="The maximum wait for `minOffsetsPerTrigger`, such as `90s` or `2h`.",
    ),
    Option(
        "failOnDataLoss",
        flag,
        READING,
        default="true",
        per_log=True,
        doc="`true`: a read or stream fails if requested records were removed, a stream also if a topic or partition "
        "was deleted. `false`: it reads the remaining records.",
    ),
    Option(
        "commitGroup",
        text,
        STREAMING_READ,
        kafka_only=True,
        doc="The consumer group to which a query commits the offsets of each finished micro-batch, for [lag "
        "tools](metrics.md#consumer-groups). The query never resumes from them.",
    ),
    Option(
        "allowUnsubscribedTopics",
        flag,
        STREAMING_READ,
        default="false",
        doc="`true`: a stream may restart with [fewer topics or partitions](streams.md#read-a-stream) than its "
        "checkpoint has.",
    ),
    Option(
        "processingTime",
        flag,
        STREAMING_READ,
        default="false",
        doc="`true`: the query has a processing-time trigger. [pyspark 4.0 and 4.1](platforms.md#pyspark-40-and-41) "
        "need this for limits of micro-batches.",
    ),
    Option("includeHeaders", flag, READING, default="false", per_log=True, doc="`true` adds the column `headers`."),
    Option(
        "logId",
        text,
        ONE_READ,
        doc="The expected id of the log, from the column `log_id` of the view `offsets`. If it differs, or the log "
        "ends before a named offset, the read fails with `[TRUNCATED]`.",
        internal=True,
    ),
    Option(
        "view",
        one_of(*VIEWS_OF_RECORDS, "offsets", "progress"),
        ONE_READ,
        default=VIEW_RECORDS,
        doc="`records`; `offsets`: a row per partition, with its end offset; `progress`: a row per job and "
        "partition.",
    ),
    Option(
        "conf", text, EVERYWHERE, doc="The file of defaults, also named by the environment variable `SPARK_CAS_CONF`."
    ),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}
"""All options by name in lower case, as Spark passes them."""
