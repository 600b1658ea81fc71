"""After an expansion, a rerun of an interrupted load appends the remaining rows."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import open_log, route
from spark_cas.core.errors import InputChangedError, OptionError, error_from_text
from spark_cas.log.expanding import expand_log
from spark_cas.programs.bulk_load import main
from tests.long import full
from tests.spark.addresses import KAFKA
from tests.spark.session_settings import session_settings
from tests.support.writing import values_in
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 60
EXPECTED = [f"{number:04}" for number in range(ROWS)]


@pytest.fixture
def small_batches(spark):
    # The second is the default in 4.2.
    settings = {"arrow.maxRecordsPerBatch": "4", "pythonUDF.arrow.enabled": "true"}
    with session_settings(spark, {f"spark.sql.execution.{name}": value for name, value in settings.items()}):
        yield


def options_of(address):
    return {"path": address, "job": "flights", "maxRecordsPerChunk": "4"}


def arguments_of(address):
    """Return the command-line arguments of a bulk load that name the same log."""
    if not address.startswith("kafka://"):
        return ["--log", address]
    servers, topic = address.removeprefix("kafka://").split("/")
    return ["--bootstrap-servers", servers, "--topic", topic]


def rows(spark, count=ROWS):
    """Twenty keys with their values in order. Small values would be buffered until Spark has all of them."""
    frame = spark.range(count, numPartitions=2)
    return frame.selectExpr(
        "concat('N', id % 20) AS key", "lpad(string(id), 4, '0') || repeat(' ', 20000) AS value", "id AS place"
    )


def routed(frame, address):
    return route(frame, options_of(address), order_by=["place"]).drop("place")


def save(frame, address):
    frame.write.format("conditional-log").mode("append").options(**options_of(address)).save()


def cut(frame, at, address):
    """Return a frame whose tasks fail from row number ``at`` on, after the log has received new rows."""
    there = len(everything(address))

    def value_of(text):
        if text.startswith("0") and int(text[:4]) >= at:
            wait_until(lambda: len(everything(address)) > there, 60, lambda: "nothing was appended")
            raise RuntimeError("power cut")
        return text

    return frame.withColumn("value", sf.udf(value_of, "string")("value"))


def refusal(frame, address):
    with pytest.raises(PySparkException) as raised:
        save(frame, address)
    found = error_from_text(str(raised.value))
    return str(found or raised.value)


def held(address):
    with open_log(address) as log:
        return [[value.rstrip() for value in values_in(log, each)] for each in range(log.layout().partitions)]


def everything(address):
    return sorted(value for values in held(address) for value in values)


@pytest.fixture
def begun(spark, address, small_batches):
    """Interrupt a load, add partitions, and return the values that the load had appended."""
    stale = routed(rows(spark), address)
    assert "power cut" in refusal(cut(stale, 40, address), address)
    before = everything(address)
    assert 0 < len(before) < ROWS
    with open_log(address) as log:
        expand_log(log, 5)
    assert refusal(stale, address).startswith("[LAYOUT_CHANGED]")
    return before


@pytest.mark.parametrize("address", [*full("embedded"), KAFKA], indirect=True)
def test_rerun_after_an_expansion_appends_the_remaining_rows(spark, address, begun, tmp_path, capsys):
    assert "power cut" in refusal(cut(routed(rows(spark), address), 52, address), address)
    assert len(everything(address)) > len(begun)
    files = str(tmp_path / "rows.parquet")
    rows(spark).coalesce(1).write.parquet(files)
    given = ["--input", files, "--key", "key", "--value", "value", "--order-by", "place", "--job", "flights"]
    assert main([*given, *arguments_of(address), "--partitions", "3"], "bulk_load.py", lambda _: spark) == 2
    assert "option partitions is 3, but the log has 5" in capsys.readouterr().err
    for already in (False, True):
        # The log had 2 partitions when the load began, so the same command resumes the load.
        assert main([*given, *arguments_of(address), "--partitions", "2"], "bulk_load.py", lambda _: spark) == 0
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        told = (report["job"], report["rows"], report["earlier_rows"], report["already_complete"])
        assert told == ("flights", ROWS, len(begun), already)
    assert everything(address) == EXPECTED
    assert all(held(address)), "the new partitions have rows too"
    for values in held(address)[2:]:
        assert values == sorted(values)
    save(routed(rows(spark), address), address)
    assert everything(address) == EXPECTED


@pytest.mark.parametrize("address", ["embedded"], indirect=True)
def test_other_input_is_rejected_after_an_expansion(spark, address, begun):
    unnamed = route(rows(spark).drop("place"), address)
    assert "spark_cas.route the options of the write" in refusal(unnamed, address)
    other = rows(spark).withColumn("value", sf.replace("value", sf.lit("0000"), sf.lit("0100")))
    assert "and the input now has others" in refusal(routed(other, address), address)
    assert "the input now has only" in refusal(routed(rows(spark, 2), address), address)
    for none in (rows(spark, 0), rows(spark).where("false"), rows(spark).limit(0)):
        with pytest.raises(InputChangedError, match="none at all"):
            routed(none, address)
    by_frame = rows(spark)
    with pytest.raises(OptionError, match="order_by"):
        route(by_frame, options_of(address), order_by=[by_frame["place"].desc()])
    assert everything(address) == begun
