"""Spark with an S3 API: each worker receives the settings and opens its own client."""

import uuid

import pytest
from pyspark.sql import functions as sf

from spark_cas import bootstrap, route
from tests.long import full
from tests.objects.bad_day import BUSY, GIVES_UP, SILENT, BadDay, proxy_to
from tests.objects.documented_rights import Users, documented_rights
from tests.objects.servers import moto
from tests.spark.streams import Stream
from tests.spark.tasks import failed_tasks
from tests.support.programs import run_cli

pytestmark = [pytest.mark.spark, pytest.mark.s3]

SECRET = "aws_secret_access_key"


@pytest.fixture
def settings(s3, tmp_path):
    """The options of the store, with the secret in a file that the driver and the workers read."""
    file = tmp_path / "secret"
    file.write_text(s3.options[SECRET] + "\n")
    return s3.options | {SECRET: f"file:{file}"}


@pytest.fixture
def options(s3, settings):
    return {
        "path": f"{s3.url}/{uuid.uuid4().hex}/flights",
        "job": "load-1",
        "partitions": "3",
        **{f"store.{name}": value for name, value in settings.items()},
    }


@pytest.fixture
def flights(spark):
    ids = spark.range(300, numPartitions=2)
    return ids.select(
        sf.concat(sf.lit("N"), sf.col("id") % 10).alias("key"), sf.col("id").cast("string").alias("value")
    )


def reading(options):
    return {name: value for name, value in options.items() if name not in ("job", "partitions")}


def save(flights, options):
    route(flights, options).write.format("conditional-log").mode("append").options(**options).save()


def ends(spark, options):
    view = spark.read.format("conditional-log").options(**reading(options), view="offsets").load()
    return {row.partition: row.end_offset for row in view.collect()}


def test_a_load_and_the_same_load_again(spark, flights, options):
    save(flights, options)
    first = ends(spark, options)
    assert list(first) == [0, 1, 2]
    assert sum(first.values()) == 300
    save(flights, options)
    assert ends(spark, options) == first
    read = spark.read.format("conditional-log").options(**reading(options)).load()
    found = read.select(sf.col("key").cast("string"), sf.col("value").cast("string")).collect()
    assert sorted(found) == sorted(flights.collect())


@pytest.mark.parametrize(
    "fault", [(SILENT, "/partition=00001/"), *full((BUSY, "plan.json"), (GIVES_UP, "complete.json"))]
)
def test_a_load_rides_out_a_bad_time_of_its_store_without_a_failed_task(spark, s3, flights, options, fault):
    kind, path = fault
    spark.sparkContext.setJobGroup(options["path"], "a load with a bad time")
    with proxy_to(s3.endpoint) as proxy:
        through = options | {"store.aws_endpoint": proxy.endpoint, "store.retry_timeout": "12s"}
        proxy.day = BadDay(kind, 6, "PUT", path, after=True)
        save(flights, through)
        assert proxy.day.began.is_set()
    assert failed_tasks(spark.sparkContext, options["path"]) == []
    read = spark.read.format("conditional-log").options(**reading(options)).load()
    found = read.select(sf.col("key").cast("string"), sf.col("value").cast("string")).collect()
    assert sorted(found) == sorted(flights.collect())


def test_command_line_reads_the_log_with_the_same_settings(spark, flights, options, settings):
    save(flights, options)
    given = [word for name, value in settings.items() for word in ("--log-option", f"store.{name}={value}")]
    ended = run_cli("offsets", options["path"], *given)
    assert ended.code == 0, ended.err
    table = [[cell.strip() for cell in line.split("│")] for line in ended.out.splitlines() if line[0] == "│"]
    assert {int(partition): int(end) for _, partition, _, end, *_ in table} == ends(spark, options)


@pytest.mark.full
def test_documented_rights_are_sufficient_for_loads_streams_and_bootstrap(spark, flights, tmp_path):
    with moto(INITIAL_NO_AUTH_ACTION_COUNT=f"{Users.UNCHECKED}") as served:
        users, spec = Users(served), served.spec()

        def options(role):
            user = users.as_user(spec, documented_rights(role, spec))
            return {"path": spec.url, **{f"store.{name}": value for name, value in user.store_options}}

        writer, reader = options("writer"), options("reader")
        save(flights, writer | {"job": "load-1", "partitions": "3"})
        copied = Stream(spark, tmp_path / "copied", **reader, startingOffsets="earliest")
        assert sum(copied.run()) == 300
        rows = spark.readStream.schema("partition int, offset bigint, value string")
        again = route(rows.parquet(str(tmp_path / "copied/rows")).selectExpr("value as key", "value"), writer)
        checkpoint = {"checkpointLocation": str(tmp_path / "checkpoint")}
        query = again.writeStream.format("conditional-log").options(**writer, **checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        assert bootstrap(spark, reader).records.count() == 600
