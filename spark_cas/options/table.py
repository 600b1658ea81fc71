"""The one table of options: all that is parsed, refused and documented comes from it."""

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
"""A chunk is one PUT, and its bytes are in memory while it is made."""

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
        doc="Where the log is: a directory (`/data/logs/flights`, `file:///data/logs/flights`); an object store "
        "(`s3://bucket/logs/flights`, `s3a://`, `gs://`, "
        "`abfss://container@account.dfs.core.windows.net/logs/flights`, `abfs://`, `az://container/logs/flights`, "
        "`azure://`, `adl://`: [addresses](object-store.md#addresses)); or a topic, as the two options below name it "
        "(`kafka://host:9092/flights`). Given by `save(path)`, `load(path)` or SQL's `WITH (path='...')`.",
    ),
    Option(
        SERVERS,
        check_servers,
        None,
        EVERYWHERE,
        per_log=False,
        kafka_only=True,
        doc="The brokers of a log that is a topic: `host:port`, or several separated by commas; in place of `path`.",
    ),
    Option(
        "topic",
        one_topic,
        None,
        EVERYWHERE,
        per_log=False,
        kafka_only=True,
        doc="The topic. A column `topic` of the frame is passed over: one write goes to one topic.",
    ),
    Option(
        "subscribe",
        topics,
        None,
        READING,
        per_log=False,
        kafka_only=True,
        doc="One topic, or several separated by commas: the column `topic` tells which a record is of. Of this "
        "option, `topic`, `subscribePattern` and `assign`, one is given.",
    ),
    Option(
        "subscribePattern",
        pattern,
        None,
        READING,
        per_log=False,
        kafka_only=True,
        doc="All topics whose whole name matches a regular expression (Python's), but for the brokers' own and the "
        "registry. A stream finds new ones as they come.",
    ),
    Option(
        "assign",
        parse_assigned,
        None,
        READING,
        per_log=False,
        doc='Only some partitions: JSON such as `{"flights": [0, 1]}`. For a log under a `path`, whose name is the '
        "last part of it, too.",
    ),
    Option(
        "job",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="The identity of the load: a write with the same job resumes it and appends nothing twice. Without "
        "it a fresh name is made, and a re-run is not recognised. Of a stream, the identity of the query: without it "
        "the query's id, which lives in its checkpoint.",
    ),
    Option(
        "batchId",
        whole_number(_MOST_BATCHES, least=0),
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="Within `foreachBatch`, the number of the batch that it is given: with `job`, the write is then part of "
        "a stream, and appends each batch exactly once.",
    ),
    Option(
        "orderBy",
        some_of(*ORDER_COLUMNS),
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="Of a stream: the columns, such as `timestamp` or `key,timestamp`, by which the rows of a batch are "
        "sorted within each partition, nulls last; the other columns break ties. Needed where the rows of a batch "
        "for one partition are more than a chunk. `route(order_by=...)` sorts a load.",
    ),
    Option(
        "expectedOffsets",
        ExpectedOffsets.parse,
        "end",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="What the write expects each partition to end at: `end` (as found when the plan is made, which Spark "
        "lets happen when the routed rows are ready; name offsets to claim an earlier moment), `none` (no "
        'check: others may append in between), or JSON such as `{"0": 17, "3": null}`, where partitions '
        "that are not named are taken at their end and null asks for no check. JSON that names just the partitions "
        "of an earlier layout is refused: [more partitions](expansion.md). A stream's default is `none`; with "
        "`end` it stops at the first record of anybody else that came after its begin.",
    ),
    Option(
        "checkExpectedOffsets",
        flag,
        "true",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`false` asks for no check, as `expectedOffsets` = `none` does: an ordinary sink that appends each row "
        "exactly once. A frame whose rows say in the column `expected_offset` what they expect is then refused.",
    ),
    Option(
        "compare",
        one_of("partition", "key"),
        "partition",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="What an expected offset is about. `partition`: that nothing came since in the partition. `key`: that no "
        "record of the row's key came since, whatever came of other keys; each row expects what the column "
        "`expected_offset` says, or without it what `expectedOffsets` says of its partition. See "
        "[conditions](conditions.md).",
    ),
    Option(
        "idempotence",
        idempotence,
        REQUIRED,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`required`: exactly once, or an error before anything is appended where the brokers, the ACLs or the "
        "store do not give it. `requested`: the best that they give; what it was is told per partition "
        "(`guarantee`), and a write that expects anything, or was begun exactly once, is refused rather than "
        "appended with less. `off`: appended at whatever the end is, without `job`, and again by whatever is tried "
        "again. Streams take `required` alone, whatever the file of defaults says. `true` and `false` mean "
        "`required` and `off`, and are deprecated. See [conditions](conditions.md#how-much-is-promised).",
    ),
    Option(
        "report",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="Given by the bulk load: a file, where Spark's driver runs, into which a load puts its result as JSON "
        "once it is complete. Nothing else keeps that of a write that is not exactly once.",
    ),
    Option(
        "atomic",
        atomicity,
        "false",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="`load`: the rows of all partitions become visible in one step, each partition at the offset that it "
        "expected, or none ever do; on Kafka through one task, in one transaction. See "
        "[a whole load](conditions.md#a-whole-load). `partition`, or `true`, appends all rows of a partition as one "
        "chunk or none of them. Where they do not fit into one, the write is refused before its task appends "
        "anything.",
    ),
    Option(
        "partitions",
        whole_number(MOST_PARTITIONS),
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The partition count of a log that does not exist yet: the write creates it, a topic with the "
        "replication and retention that are the brokers' defaults (seven days with Kafka as it comes). Given for a "
        "log that exists, it must be that log's count, or one that it had before partitions were added; as a per-log "
        "default it counts for new logs only.",
    ),
    Option(
        "partitioner",
        partitioner,
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How `route` assigns a key to a partition. `murmur2` (or `murmur2_random`): as Kafka's Java client does. "
        "`crc32` (or `consistent`, `consistent_random`): as clients on librdkafka do by default, such as "
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
        doc="The most records of one atomic append to one partition.",
    ),
    Option(
        "maxBytesPerChunk",
        whole_number(MAX_BYTES_PER_CHUNK),
        str(_LIMITS.max_bytes),
        WRITING_AND_ROUTING,
        per_log=True,
        doc="The most bytes of one atomic append to one partition, at most 64 MiB. A record above it is refused.",
    ),
    Option(
        "maxSecondsPerChunk",
        seconds,
        f"{_LIMITS.max_seconds:g}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long rows wait for their chunk to fill: it is appended with the next rows that come later.",
    ),
    Option(
        "routed",
        flag,
        "false",
        WRITING_AND_ROUTING,
        per_log=False,
        doc="`true` says that all rows of each log partition lie in one task although `spark_cas.route` did not "
        "put them there. It is checked while writing.",
    ),
    Option(
        "roundOf",
        text,
        None,
        WRITING_AND_ROUTING,
        per_log=False,
        doc="Given by `append_if_unchanged`, whose rounds are jobs: the job that was named to it. The registry keeps "
        "it with the plan of the round, which no other write joins.",
    ),
    Option(
        "fencedWaitMs",
        whole_number(),
        f"{FENCED_WAIT_SECONDS * 1000:.0f}",
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long an attempt of a task that another attempt overtook waits for news of that other one, in "
        "milliseconds.",
    ),
    Option(
        "grantTimeout",
        duration_ms,
        None,
        WRITING_AND_ROUTING,
        per_log=True,
        doc="How long a load waits, before it plans, for other loads that are at work on partitions of which both "
        "expect something: a time such as `30m`, `0s` to be refused at once. Unless it is given that is `1h` where "
        "`expectedOffsets` is `end`, and `0s` where offsets are named, for then they would not hold any more. See "
        "[loads at once](conditions.md#two-loads-at-once).",
    ),
    Option(
        "idPrefix",
        text,
        DEFAULT_PREFIX,
        EVERYWHERE,
        per_log=True,
        kafka_only=True,
        doc="Begins every transactional id (`<prefix>/<topic>/<partition>`), every ledger group (`<prefix>/<job>`) "
        "and the names of the registry topics (`<prefix>.registry`, `<prefix>.layouts`), so that ACLs can be given "
        "by prefix. All writers of a topic have to use the same, and its readers where `spark-cas expand` added "
        "partitions or loads are appended as a whole (`atomic=load`): with another they may see part of one.",
    ),
    Option(
        "claimTimeoutMs",
        whole_number(),
        str(PATIENCE_MS),
        EVERYWHERE,
        per_log=True,
        kafka_only=True,
        doc="How long a write or a read waits for the end of somebody else's open transaction, in milliseconds.",
    ),
    Option(
        "transactionTimeoutMs",
        whole_number(),
        str(DEFAULT_TRANSACTION_MS),
        WRITING_AND_ROUTING,
        per_log=True,
        kafka_only=True,
        doc="How long a writer that died in the middle of a chunk may keep readers waiting, in milliseconds.",
    ),
    Option(
        "maxInFlight",
        whole_number(MOST_IN_FLIGHT),
        str(MOST_IN_FLIGHT),
        WRITING_AND_ROUTING,
        per_log=True,
        kafka_only=True,
        doc="The most requests with records that a writer has unanswered at once, 1 to 5. Rows come once and in "
        "order with each, unless `idempotence` is `off`. The client sends the next one only while fewer than five "
        "records are unanswered, so it makes a difference to large records alone: [performance](performance.md).",
    ),
    Option(
        "startingOffsets",
        parse_offsets,
        None,
        READING,
        per_log=False,
        doc="From where on records are read: `earliest`, `latest`, or JSON that names every partition, such as "
        '`{"flights": {"0": 23, "1": -2}}`, where -2 is the earliest and -1 the latest offset. Without it a read '
        "begins at the earliest, and a stream, the first time it starts, at the latest.",
    ),
    Option(
        "startingTimestamp",
        milliseconds,
        None,
        READING,
        per_log=False,
        doc="From which time on records are read, in milliseconds since 1970: from the first record that is as new, "
        "and all behind it. Wins over `startingOffsetsByTimestamp`, and that over `startingOffsets`.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        parse_times,
        None,
        READING,
        per_log=False,
        doc='The same for each partition: JSON such as `{"flights": {"0": 1767225600000, "1": 1767225600000}}`.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        one_of("error", "latest"),
        "error",
        READING,
        per_log=False,
        doc="What becomes of a partition without a record as new as the time it is to start at: an `error`, or it "
        "starts at its `latest` offset.",
    ),
    Option(
        "endingOffsets",
        parse_offsets,
        "latest",
        ONE_READ,
        per_log=False,
        doc="Up to where records are read, this offset not included: as `startingOffsets`. What is the latest is "
        "decided once, when the read is planned.",
    ),
    Option(
        "endingTimestamp",
        milliseconds,
        None,
        ONE_READ,
        per_log=False,
        doc="Up to which time records are read, in milliseconds since 1970: up to the first record that is as new. "
        "Wins over `endingOffsetsByTimestamp`, and that over `endingOffsets`.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        parse_times,
        None,
        ONE_READ,
        per_log=False,
        doc="The same for each partition: as `startingOffsetsByTimestamp`.",
    ),
    Option(
        "minPartitions",
        whole_number(),
        None,
        READING,
        per_log=True,
        doc="At least so many tasks read, where there are as many offsets: large partitions are split. Without it a "
        "partition is read by one task, which of many small ones reads several.",
    ),
    Option(
        "maxRecordsPerPartition",
        whole_number(2**63 - 1),
        None,
        READING,
        per_log=True,
        doc="At most so many offsets are read by one task: larger partitions are split.",
    ),
    Option(
        "maxOffsetsPerTrigger",
        whole_number(2**63 - 1),
        None,
        STREAMING_READ,
        per_log=True,
        doc="The most offsets of one micro-batch, over all partitions: at least one of each partition that has new "
        "ones, and the remainder in proportion to them. If it is below the number of these partitions, they take "
        "turns from batch to batch.",
    ),
    Option(
        "isolation",
        one_of("partition", ISOLATION_LOAD),
        "partition",
        STREAMING_READ,
        per_log=True,
        doc="`load`: no micro-batch of the stream ends within a [whole load](conditions.md#a-whole-load): it waits "
        "where one is being decided, and takes no `maxOffsetsPerTrigger`. `partition`: each partition is followed by "
        "itself, and never waits for another.",
    ),
    Option(
        "minOffsetsPerTrigger",
        whole_number(2**63 - 1),
        None,
        STREAMING_READ,
        per_log=True,
        doc="A micro-batch waits until there are so many offsets, or `maxTriggerDelay` is over. Not with "
        "`Trigger.AvailableNow`, which reads what there is.",
    ),
    Option(
        "maxTriggerDelay",
        duration_ms,
        "15m",
        STREAMING_READ,
        per_log=True,
        doc="How long a micro-batch waits for `minOffsetsPerTrigger`: such as `90s`, `15m`, `2h`.",
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
        "has. It does not read the remaining records of the others, and keeps their offsets: it resumes there if the "
        "options select them again. `false`: such a restart fails before it reads anything new.",
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
        doc="Which log is meant, by the column `log_id` of the view `offsets`: if another one has its name by now, "
        "or it ends before an offset that is named, the read ends in `[TRUNCATED]`. `bootstrap` gives it.",
    ),
    Option(
        "view",
        one_of(*VIEWS_OF_RECORDS, "offsets", "progress"),
        VIEW_RECORDS,
        ONE_READ,
        per_log=False,
        doc="`records`; or `newest`, of each key of a partition the newest record and maybe others, not always the "
        "same, which a state is made from; or `offsets`, a row per partition, whose `end_offset` is what the next "
        "conditional write expects; or `progress`, a row per job and partition.",
    ),
    Option(
        "conf",
        text,
        None,
        EVERYWHERE,
        per_log=False,
        doc='A TOML file of defaults: `[defaults]`, and `[logs."<name or path>"]` for one log. Read once, on the '
        "driver. Without it the environment variable `SPARK_CAS_CONF` names the file. What may read several topics "
        "takes `[defaults]` alone.",
    ),
)

BY_KEY = {option.name.lower(): option for option in OPTIONS}
"""Options as they arrive from Spark: in lower case."""
