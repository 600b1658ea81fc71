"""The state of a topic, compared with a handwritten query on Spark's own source."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks.kafka_broker import Topics
from benchmarks.kafka_writing import append_to
from benchmarks.measure import NO_SCRATCH, Result, compare
from benchmarks.sizes import PARTITIONS
from benchmarks.writing import discard
from spark_cas import bootstrap

VERSIONS = 10
"""Records of each key."""


def compare_states(spark: SparkSession, rows: DataFrame, topics: Topics, repeats: int) -> Result:
    """Compute the newest value of each key and discard it. Ours also reads the bounds of the topic."""
    topic = topics.fresh()
    # Do not sort by key: the versions of a key are then far apart, as with keys that change repeatedly.
    spread = _versions(rows, rows.count() // VERSIONS).repartitionById(PARTITIONS, sf.col("partition"))
    append_to(spread.sortWithinPartitions("value"), topics.options(topic))
    where = {"kafka.bootstrap.servers": topics.address, "subscribe": topic}
    records = spark.read.format("kafka").options(**where, **{"kafka.isolation.level": "read_committed"})
    return compare(
        "Kafka state",
        lambda _: discard(bootstrap(spark, where).state),
        lambda _: discard(_by_hand(records.load())),
        goal="at least 1.5",
        scratch=NO_SCRATCH,
        repeats=repeats,
    )


def _versions(rows: DataFrame, keys: int) -> DataFrame:
    """Return the values with ``keys`` distinct keys, each key in one partition."""
    number = sf.pmod(sf.xxhash64("key"), sf.lit(keys))
    partition = sf.pmod(number, sf.lit(PARTITIONS)).cast("int")
    key = sf.lpad(number.cast("string"), 10, "0").cast("binary")
    return rows.select(key.alias("key"), "value", partition.alias("partition"))


def _by_hand(records: DataFrame) -> DataFrame:
    newest = sf.max_by(sf.struct("value", "offset", "timestamp"), "offset").alias("newest")
    state = records.where("key IS NOT NULL").groupBy("partition", "key").agg(newest).where("newest.value IS NOT NULL")
    return state.select("key", "newest.value", "partition", "newest.offset", "newest.timestamp")
