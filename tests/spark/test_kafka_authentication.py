"""A load, a stream and a bootstrap on a broker that authenticates the driver and the workers over TLS."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas import bootstrap, open_log, route, verify_log
from spark_cas.core.errors import OptionError
from tests.kafka.authenticating import AWS_USER, SECRETS, WAYS
from tests.kafka.clients import create_topic
from tests.long import full
from tests.spark.short_runs import ARGUMENTS
from tests.spark.sinks import Source, keys, run
from tests.support import token_provider
from tests.support.writing import values_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
FIRST = "token provider"
"""The workers import its function, and each of their clients gets a token from it."""
ALL = [FIRST, *full(*(way for way in WAYS if way != FIRST))]


def appended(authenticating, way: str, topic: str) -> list[str]:
    with open_log(f"kafka://{authenticating.servers[way]}/{topic}", authenticating.settings[way]) as log:
        return sorted(value for partition in range(2) for value in values_in(log, partition))


def assert_hidden(text: str) -> None:
    assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.full
@pytest.mark.usefixtures("msk_user")
@pytest.mark.parametrize("way", WAYS)
def test_bulk_load_leaves_no_secret_in_the_event_log(authenticating, way, tmp_path):
    """With references to the secrets, as documented. The event log contains the command with its options."""
    topic = create_topic(authenticating.open, 2)
    pq.write_table(pa.table({"k": [f"{at}" for at in range(40)]}), tmp_path / "rows.parquet")
    events = tmp_path / "events"
    events.mkdir()
    command = [
        *(str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"),
        *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events.as_uri()}"),
        *("--conf", "spark.eventLog.compress=false"),
        *ARGUMENTS,
        str(ROOT / "jobs" / "bulk_load.py"),
        *("--input", str(tmp_path / "rows.parquet"), "--key", "k", "--value", "k", "--job", "load-1", "--verify"),
        *("--bootstrap-servers", authenticating.servers[way], "--topic", topic),
        *(f"--log-option={name}={value}" for name, value in authenticating.options(way).items()),
    ]
    environment = {**os.environ, **AWS_USER, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout.splitlines()[-1])["appended_rows"] == 40
    assert appended(authenticating, way, topic) == sorted(f"{at}" for at in range(40))
    told = "".join(
        file.read_text() for file in events.rglob("*") if file.is_file() and not file.name.endswith(".crc")
    )
    assert "conditional-log" in told
    assert_hidden(told + ended.stdout + ended.stderr)


@pytest.mark.usefixtures("msk_user")
@pytest.mark.parametrize("way", ALL)
def test_stream_and_bootstrap(spark, authenticating, way, tmp_path):
    topic = create_topic(authenticating.open, 2)
    options = {"kafka.bootstrap.servers": authenticating.servers[way], "topic": topic, **authenticating.options(way)}
    source = Source(spark, tmp_path / "source")
    routed = route(source.stream(), options)
    rows = []
    for name in "ab":
        rows += source.add(name, *keys(20))
        run(routed, str(tmp_path / "checkpoint"), **options, job="copy")
    assert appended(authenticating, way, topic) == sorted(rows)
    log = bootstrap(spark, options)
    newest = {bytes(row.key): row.value.decode() for row in log.state.collect()}
    assert sorted(newest.values()) == sorted(f"b-{at:03d}" for at in range(13, 20))
    read = spark.readStream.format("conditional-log").options(**options, startingOffsets="earliest").load()
    query = read.selectExpr("CAST(value AS STRING) value").writeStream.format("memory").queryName("authenticated")
    query = query.option("checkpointLocation", str(tmp_path / "reading")).start()
    try:
        query.processAllAvailable()
        assert sorted(row.value for row in spark.table("authenticated").collect()) == sorted(rows)
    finally:
        query.stop()
    plans = read._sc._jvm.PythonSQLUtils.explainString(log.records._jdf.queryExecution(), "extended")
    queries = spark._jsparkSession.sharedState().statusStore().executionsList()
    told = " ".join(queries.apply(number).physicalPlanDescription() for number in range(queries.size()))
    assert "conditional-log" in told
    assert_hidden(plans + told)


# Last, because column functions belong to Connect while the fixture exists.
@pytest.mark.parametrize(
    "reference", [None, f"function:{token_provider.__name__}:password"], ids=["file", "function"]
)
def test_secret_by_reference_on_spark_connect(connect, authenticating, reference):
    way = "SCRAM-SHA-256"
    options = {
        "kafka.bootstrap.servers": authenticating.servers[way],
        "topic": create_topic(authenticating.open, 2),
        **authenticating.options(way, reference),
    }
    rows = connect.range(40).selectExpr("STRING(id) AS key", "STRING(id) AS value")
    route(rows, options).write.format("conditional-log").mode("append").options(**options, job="load").save()
    read = connect.read.format("conditional-log").options(**options).load()
    assert sorted(row.value for row in read.selectExpr("STRING(value) AS value").collect()) == sorted(
        f"{at}" for at in range(40)
    )
    wrong = {
        name: value.replace("/password", "/none").replace(":password", ":raises") for name, value in options.items()
    }
    with pytest.raises(OptionError, match=r"the password in kafka\.sasl\.jaas\.config") as error:
        verify_log(rows, wrong)
    assert_hidden(str(error.value))
