"""The table of all options, from which parsing, validation and documentation are derived."""

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.micro_batch import ORDER_COLUMNS
from spark_cas.core.plan import MOST_PARTITIONS
from spark_cas.log.kafka.address import check_servers
from spark_cas.log.kafka.spec import DEFAULT_PREFIX, DEFAULT_TRANSACTION_MS, MOST_IN_FLIGHT
from spark_cas.log.load.attempts import FENCED_WAIT_SECONDS
from spark_cas.log.patience import PATIENCE_MS
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
from spark_cas.options.read_range import parse_offsets, parse_times
from spark_cas.options.topic_partitions import parse_assigned

MAX_BYTES_PER_CHUNK = 64 * 1024 * 1024
"""A chunk is one PUT request, and the task builds it in memory."""

SERVERS = "kafka.bootstrap.servers"

_LIMITS = ChunkLimits()
_MOST_BATCHES = 2**63 - 1

OPTIONS: tuple[Option, ...] = (
    Option(
        "path",
        text,
        None,
        EVERYWHERE,
        per_log=False,
        doc="The location of the log: a directory (`/data/logs/flights`, `file:///data/logs/flights`); an object "
        "store (`s3://bucket/logs/flights`, `s3a://`, `gs://`, "
        "`abfss://container@account.dfs.core.windows.net/logs/flights`, `abfs://`, `az://container/logs/flights`, "
        "`azure://`, `adl://`: [addresses](object-store.md#addresses)); or a topic (`kafka://host:9092/flights`), "
        "which the next two options can also name. `save(path)`, `load(path)` and SQL's `WITH (path='...')` set it.",
    ),
    Option(
        SERVERS,
        check_servers,
        None,
        EVERYWHERE,
        per_log=False,
        kafka_only=True,
        doc="The brokers of a topic, instead of `path`: `host:port`, or several, separated by commas.",
    ),
    Option(
        "topic",
        one_topic,
        None,
        EVERYWHERE,
        per_log=False,
        kafka_only=True,
        doc="The topic. A write with this option ignores a column `topic`. Without it, a batch write appends each "
        "row to the topic in that column: [several topics](kafka-quickstart.md#write-to-several-topics).",
    ),
    Option(
        "subscribe",
        topics,
        None,
        READING,
        per_log=False,
        kafka_only=True,
        doc="One topic, or several, separated by commas. The column `topic` has the topic of each record. Set only "
        "one of `subscribe`, `topic`, `subscribePattern` and `assign`.",
    ),
    Option(
        "subscribePattern",
        pattern,
        None,
        READING,
        per_log=False,
        kafka_only=True,
        doc="A regular expression (Python's) for topics. The whole name must match. The brokers' own topics and the "
        "registry never match. A stream also reads new topics that match.",
    ),
    Option(
        "assign",
        parse_assigned,
        None,
        READING,
        per_log=False,
        doc='Only these partitions, as JSON such as `{"flights": [0, 1]}`. It also works with `path`, whose last '
        "part is the name of the log.",
    ),
    Option(
        "job",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="The identity of the load. A write with the same job resumes it, and appends nothing twice. By default, "
        "each write has a new name, so a re-run is not recognised. For a stream, the identity of the query; by "
        "default the query's id, which is stored in its checkpoint.",
    ),
    Option(
        "batchId",
        whole_number(_MOST_BATCHES, least=0),
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="In `foreachBatch`, the number of the batch. With `job`, the write is then part of a stream, and appends "
        "each batch exactly once. On Spark Connect, the job name identifies the query: give each query its own.",
    ),
    Option(
        "orderBy",
        some_of(*ORDER_COLUMNS),
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="For a stream: the columns by which the rows of a batch are sorted within each partition, such as "
        "`timestamp` or `key,timestamp`. Nulls are last, and the other columns break ties. Set it if the rows of a "
        "batch for one partition do not fit into a chunk. For a load use `route(order_by=...)`.",
    ),
    Option(
        "expectedOffsets",
        ExpectedOffsets.parse,
        "end",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="The end offset that the write expects of each partition. `end`: the end offset when Spark plans the "
        "write. That can be after it has computed the routed rows, so name offsets to expect those of an earlier "
        'moment. `none`: no check, and others may append meanwhile. JSON such as `{"0": 17, "3": null}`: offsets by '
        "partition, null for no check; partitions that are not named are as with `end`. JSON that names only the "
        "partitions of an earlier layout is rejected: [adding partitions](expansion.md). Without option `topic`, the "
        'JSON has the offsets of each topic, such as `{"flights": {"0": 17}}`. For a stream the default is '
        "`none`; with `end`, it stops at the first record that another writer appends after its begin.",
    ),
    Option(
        "checkExpectedOffsets",
        flag,
        "true",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`false` switches off all checks, like `expectedOffsets=none`. The write is then an ordinary sink that "
        "appends each row exactly once. It rejects a frame with the column `expected_offset`.",
    ),
    Option(
        "compare",
        one_of("partition", "key"),
        "partition",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The scope of an expected offset. `partition`: no record was appended to the partition since. `key`: no "
        "record of the row's key was appended since; records of other keys are allowed. Each row then expects its "
        "column `expected_offset`, or without that column the `expectedOffsets` of its partition. See "
        "[conditions](conditions.md).",
    ),
    Option(
        "idempotence",
        idempotence,
        REQUIRED,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`required`: exactly once. If the brokers, the ACLs or the store do not allow that, the write fails "
        "before it appends anything. `requested`: the best guarantee that they allow, reported per partition "
        "(`guarantee`). If that is less than exactly once, a write with conditions is rejected, and so is one that "
        "began exactly once. `off`: appends at the current end, without `job`, and retries append rows again. "
        "Streams accept only `required`, and ignore this setting in the file of defaults. `true` and `false` are "
        "deprecated, and mean `required` and `off`. See [conditions](conditions.md#how-much-is-promised).",
    ),
    Option(
        "report",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="Set by the bulk load: a file on the machine of Spark's driver. After the load is complete, the driver "
        "writes its result there as JSON. The result of a write that is not exactly once is stored nowhere else.",
    ),
    Option(
        "atomic",
        atomicity,
        "false",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`load`: the rows of all partitions become visible in one step, each partition at its expected offset, "
        "or never. On Kafka, one task appends them in one transaction. See [atomic "
        "loads](conditions.md#a-whole-load). `partition`, or `true`: all rows of a partition are appended as one "
        "chunk, or none. If they do not fit into a chunk, the write is rejected before its task appends anything.",
    ),
    Option(
        "partitions",
        whole_number(MOST_PARTITIONS),
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The partition count of a new log. If the log does not exist, the write creates it. A new topic has the "
        "brokers' default replication and retention (seven days out of the box). If the log exists, the option must "
        "be its count, or an earlier count from before partitions were added. As a per-log default it applies only "
        "to new logs.",
    ),
    Option(
        "partitioner",
        partitioner,
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How `route` assigns a key to a partition. `murmur2` (or `murmur2_random`): as Kafka's Java client. "
        "`crc32` (or `consistent`, `consistent_random`): as clients on librdkafka by default, such as "
        "confluent-kafka for Python. The log records it, so later writes need not name it, and another value is an "
        "error. A log without a record has `murmur2`. Rows without a key are assigned by their content. See "
        "[partitioners](kafka.md#partitioners).",
    ),
    Option(
        "maxRecordsPerChunk",
        whole_number(),
        str(_LIMITS.max_records),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The maximum number of records in one atomic append to one partition.",
    ),
    Option(
        "maxBytesPerChunk",
        whole_number(MAX_BYTES_PER_CHUNK),
        str(_LIMITS.max_bytes),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The maximum number of bytes in one atomic append to one partition, up to 64 MiB. A larger record is "
        "rejected.",
    ),
    Option(
        "maxSecondsPerChunk",
        seconds,
        f"{_LIMITS.max_seconds:g}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How many seconds rows wait for their chunk to fill. After that, the task appends the chunk when its "
        "next rows arrive.",
    ),
    Option(
        "routed",
        flag,
        "false",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="`true`: all rows of each log partition are in one task, although `spark_cas.route` did not place them. "
        "The write verifies it.",
    ),
    Option(
        "roundOf",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="Set by `append_if_unchanged`, which runs each of its rounds as a job: the job name of the call. The "
        "registry stores it with the plan of the round, and no other write can use that plan.",
    ),
    Option(
        "fencedWaitMs",
        whole_number(),
        f"{FENCED_WAIT_SECONDS * 1000:.0f}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long a fenced task attempt waits for its successor to make progress, in milliseconds.",
    ),
    Option(
        "grantTimeout",
        duration_ms,
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long a load with expected offsets waits, before it plans, for other such loads of the same "
        "partitions: a duration such as `30m`. With `0s` it fails at once. The default is `1h` with "
        "`expectedOffsets=end`, and `0s` if you name offsets, because they will no longer match. See [loads at "
        "once](conditions.md#two-loads-at-once).",
    ),
    Option(
        "idPrefix",
        text,
        DEFAULT_PREFIX,
        EVERYWHERE,
        per_log=True,
        kafka_only=True,
        doc="The prefix of all transactional ids (`<prefix>/<topic>/<partition>`), ledger groups (`<prefix>/<job>`) "
        "and registry topics (`<prefix>.registry`, `<prefix>.layouts`), so that ACLs can be prefixed. All writers of "
        "a topic must use the same prefix. So must its readers if `spark-cas expand` added partitions, or loads use "
        "`atomic=load`; with another prefix, they may see a part of a load.",
    ),
    Option(
        "claimTimeoutMs",
        whole_number(),
        str(PATIENCE_MS),
        EVERYWHERE,
        per_log=True,
        kafka_only=True,
        doc="How long a write or a read waits for an open transaction of another producer, in milliseconds.",
    ),
    Option(
        "transactionTimeoutMs",
        whole_number(),
        str(DEFAULT_TRANSACTION_MS),
        WRITING_AND_ROUTING,
        per_log=True,
        kafka_only=True,
        doc="How long a writer that died within a chunk can delay readers, in milliseconds.",
    ),
    Option(
        "maxInFlight",
        whole_number(MOST_IN_FLIGHT),
        str(MOST_IN_FLIGHT),
        WRITING_AND_ROUTING,
        per_log=True,
        kafka_only=True,
        doc="The maximum number of unacknowledged produce requests of a writer, 1 to 5. With each value, rows are "
        "stored once and in order, unless `idempotence` is `off`. The client sends the next request only while fewer "
        "than five records are unacknowledged, so the value affects only large records: "
        "[performance](performance.md).",
    ),
    Option(
        "startingOffsets",
        parse_offsets,
        None,
        READING,
        per_log=False,
        doc="The first offsets to read: `earliest`, `latest`, or JSON that names each partition, such as "
        '`{"flights": {"0": 23, "1": -2}}`, with -2 for the earliest and -1 for the latest offset. The default is '
        "`earliest` for a read, and `latest` for a new stream.",
    ),
    Option(
        "startingTimestamp",
        milliseconds,
        None,
        READING,
        per_log=False,
        doc="Where to start, in milliseconds since 1970: at the first record of each partition with this timestamp "
        "or a later one, and all records after it. It overrides `startingOffsetsByTimestamp`, which overrides "
        "`startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        parse_times,
        None,
        READING,
        per_log=False,
        doc='The same for each partition, as JSON such as `{"flights": {"0": 1767225600000, "1": 1767225600000}}`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        "error",
        READING,
        per_log=False,
        doc="If a partition has no record with the starting timestamp or a later one: `error` fails, `latest` starts "
        "at its end.",
    ),
    Option(
        "endingOffsets",
        parse_offsets,
        "latest",
        ONE_READ,
        per_log=False,
        doc="The offsets at which the read ends, exclusive, in the format of `startingOffsets`. `latest` is "
        "determined once, when the read is planned.",
    ),
    Option(
        "endingTimestamp",
        milliseconds,
        None,
        ONE_READ,
        per_log=False,
        doc="Where to end, in milliseconds since 1970: before the first record with this timestamp or a later one. "
        "It overrides `endingOffsetsByTimestamp`, which overrides `endingOffsets`.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        parse_times,
        None,
        ONE_READ,
        per_log=False,
        doc="The same for each partition, in the format of `startingOffsetsByTimestamp`.",
    ),
    Option(
        "minPartitions",
        whole_number(),
        None,
        READING,
        per_log=True,
        doc="The minimum number of tasks that read, if there are as many offsets. Large partitions are split. By "
        "default, one task reads a partition, or several small ones if there are many.",
    ),
    Option(
        "maxRecordsPerPartition",
        whole_number(2**63 - 1),
        None,
        READING,
        per_log=True,
        doc="The maximum number of offsets that a task reads. Larger partitions are split.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        whole_number(2**63 - 1),
        None,
        STREAMING_READ,
        per_log=True,
        doc="The maximum number of offsets in a micro-batch, over all partitions. Each partition with new offsets "
        "has at least one, and a share of the remaining ones in proportion to its new offsets. If the limit is below "
        "the number of these partitions, they take turns from batch to batch.",
    ),
    Option(
        "isolation",
        one_of("partition", ISOLATION_LOAD),
        "partition",
        STREAMING_READ,
        per_log=True,
        doc="`load`: no micro-batch ends within an [atomic load](conditions.md#a-whole-load). The stream waits while "
        "a load is undecided, and rejects `maxOffsetsPerTrigger`. `partition`: the stream follows each partition "
        "separately, and no partition waits for another.",
    ),
    Option(
        "minOffsetsPerTrigger",
        whole_number(2**63 - 1),
        None,
        STREAMING_READ,
        per_log=True,
        doc="A micro-batch waits until there are as many new offsets, or until `maxTriggerDelay` is over. "
        "`Trigger.AvailableNow` ignores it, and reads all existing records.",
    ),
    Option(
        "maxTriggerDelay",
        duration_ms,
        "15m",
        STREAMING_READ,
        per_log=True,
        doc="How long a micro-batch waits for `minOffsetsPerTrigger`, such as `90s`, `15m`, `2h`.",
    ),
    Option(
        "failOnDataLoss",
        flag,
        "true",
        READING,
        per_log=True,
        doc="`true`: a read fails if its first records were removed, and a stream if a topic or partition no longer "
        "exists. `false`: they read the remaining records. It does not cover a topic that the options of a stream no "
        "longer select: `allowUnsubscribedTopics` does.",
    ),
    Option(
        "allowUnsubscribedTopics",
        flag,
        "false",
        STREAMING_READ,
        per_log=False,
        doc="`true`: a stream may restart with options that select fewer topics or partitions than its checkpoint "
        "has. It skips the remaining records of the others, and keeps their offsets. If the options select them "
        "again, it resumes there. `false`: such a restart fails before it reads anything new.",
    ),
    Option(
        "processingTime",
        flag,
        "false",
        STREAMING_READ,
        per_log=False,
        doc="`true`: the query has a processing-time trigger. pyspark 4.0 and 4.1 do not report the trigger, so "
        "limits of micro-batches need this option there. With another trigger the query would end with unread "
        "records. pyspark 4.2 and newer ignore it.",
    ),
    Option(
        "includeHeaders",
        flag,
        "false",
        READING,
        per_log=True,
        doc="`true` adds the column `headers`.",
    ),
    Option(
        "logId",
        text,
        None,
        ONE_READ,
        per_log=False,
        doc="The id of the log, as in the column `log_id` of the view `offsets`. If the log at this address has "
        "another id now, or ends before a named offset, the read fails with `[TRUNCATED]`. `bootstrap` sets it.",
    ),
    Option(
        "view",
        one_of(*VIEWS_OF_RECORDS, "offsets", "progress"),
        VIEW_RECORDS,
        ONE_READ,
        per_log=False,
        doc="`records`. Or `offsets`: one row per partition, whose `end_offset` is the expected offset of the next "
        "conditional write. Or `progress`: one row per job and partition. Or `newest`: a superset of the latest "
        "record per key and partition, for internal use by `bootstrap`.",
    ),
    Option(
        "conf",
        text,
        None,
        EVERYWHERE,
        per_log=False,
        doc='A TOML file of defaults: `[defaults]`, and `[logs."<name or path>"]` for one log. Only the driver reads '
        "it. Without the option, the environment variable `SPARK_CAS_CONF` names the file. For a read that can "
        "select several topics, only `[defaults]` applies.",
    ),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}
"""All options by name in lower case, as Spark passes them."""
