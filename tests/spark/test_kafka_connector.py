"""How the package treats the options of Spark's own Kafka connector. No broker and no Spark."""

import os
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka.settings.client_settings import log_ignored
from spark_cas.options.parse import parse_read, parse_read_stream, parse_route, parse_write
from spark_cas.options.table import OPTIONS, READING, Scope
from tools.kafka_broker.connector import connector_jars
from tools.kafka_broker.jars import java
from tools.kafka_connector import APPLICATION, COLUMNS, SINK, SOURCE, Verdict

# The option keys in KafkaSourceProvider of spark-sql-kafka-0-10 4.2.0, spelled as there, except one for tests.
OF_THE_SOURCE = [
    "assign",
    "endingoffsets",
    "endingoffsetsbytimestamp",
    "endingtimestamp",
    "failondataloss",
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "groupidprefix",
    "includeheaders",
    "kafkaconsumer.polltimeoutms",
    "maxoffsetspertrigger",
    "maxrecordsperpartition",
    "maxtriggerdelay",
    "minoffsetspertrigger",
    "minpartitions",
    "startingoffsets",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "startingtimestamp",
    "subscribe",
    "subscribepattern",
    "kafka.bootstrap.servers",
    "kafka.group.id",
    "kafka.auto.offset.reset",
    "kafka.key.deserializer",
    "kafka.value.deserializer",
    "kafka.enable.auto.commit",
    "kafka.interceptor.classes",
    "kafka.isolation.level",
]
OF_THE_SINK = [
    "topic",
    "includeheaders",
    "kafka.bootstrap.servers",
    "kafka.key.serializer",
    "kafka.value.serializer",
    "kafka.partitioner.class",
]
# The columns and settings that its guide (docs/streaming/structured-streaming-kafka-integration.md) lists besides the
# options.
COLUMNS_OF_THE_SINK = ["key", "value", "headers", "topic", "partition"]
OF_THE_APPLICATION = [
    "spark.kafka.consumer.cache.capacity",
    "spark.kafka.consumer.cache.timeout",
    "spark.kafka.consumer.cache.evictorThreadRunInterval",
    "spark.kafka.consumer.cache.jmx.enable",
    "spark.kafka.consumer.fetchedData.cache.timeout",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval",
    "spark.kafka.producer.cache.timeout",
    "spark.kafka.producer.cache.evictorThreadRunInterval",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching",
    "spark.security.credentials.kafka.enabled",
    "spark.kafka.clusters.${cluster}.auth.bootstrap.servers",
]

CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
CONSTANT = re.compile(r"ldc .*// String (\S+)\n.* put(?:static|field) .*// Field (?:\S*\$)?(\w+):Ljava/lang/String;")
NO_OPTION = ("DEFAULT_MAX_TRIGGER_DELAY", "MOCK_SYSTEM_TIME")


def test_every_option_of_sparks_connector_is_compared():
    assert sorted(each.name.lower() for each in SOURCE) == sorted(OF_THE_SOURCE)
    assert sorted(each.name.lower() for each in SINK) == sorted(OF_THE_SINK)
    assert [each.name for each in COLUMNS] == COLUMNS_OF_THE_SINK
    patterns = [pattern for each in APPLICATION for pattern in each.name.split(", ")]
    assert [name for name in OF_THE_APPLICATION if not any(fnmatchcase(name, each) for each in patterns)] == []


@pytest.mark.full
def test_the_connector_has_no_other_option():
    """The class of the connector has the key of each option in a constant."""
    jars = os.pathsep.join(map(str, connector_jars()))
    javap = [str(Path(java()).with_name("javap")), "-c", "-p", "-classpath", jars, CLASS]
    code = subprocess.run(javap, check=True, capture_output=True, text=True).stdout
    keys = {value for value, name in CONSTANT.findall(code) if name not in NO_OPTION}
    assert keys == {each for each in (*OF_THE_SOURCE, *OF_THE_SINK) if not each.startswith("kafka.")}


@pytest.mark.parametrize(("options", "scopes"), [(SOURCE, READING), (SINK, {Scope.WRITE})])
def test_documented_options_are_accepted(options, scopes):
    taken = {option.name for option in OPTIONS if not option.scopes.isdisjoint(scopes)}
    assert {each.name for each in options if each.verdict in (Verdict.SAME, Verdict.DIFFERENT)} <= taken
    assert all(each.note for each in options if each.verdict is not Verdict.SAME)


@pytest.mark.parametrize(
    ("options", "parse"),
    [(SOURCE, parse_read), (SOURCE, parse_read_stream), (SINK, parse_write), (SINK, parse_route)],
)
@pytest.mark.parametrize(
    "log", [{"kafka.bootstrap.servers": "a:9092", "topic": "flights"}, {"path": "/logs/flights"}]
)
def test_documented_options_without_effect_are_reported_once(options, parse, log, caplog):
    log_ignored.cache_clear()
    unused = [each for each in options if each.verdict is Verdict.NO_EFFECT]
    unused = [each for each in unused if not ("path" in log and each.name.startswith("kafka."))]
    given = {each.name.lower(): each.value or "x" for each in unused}
    for _ in range(2):
        parse({**log, **given})
    told = [each.getMessage() for each in caplog.records]
    assert len(told) == len(given)
    for each in unused:
        (line,) = [line for line in told if line.startswith(f"option {each.name.lower()} has no effect here. ")]
        assert each.name.startswith("kafka.") or line.endswith(each.note)


@pytest.mark.parametrize(("options", "parse"), [(SOURCE, parse_read), (SINK, parse_write)])
def test_documented_rejections_are_rejected(options, parse):
    topic = {"kafka.bootstrap.servers": "a:9092", "topic": "flights"}
    refused = [each.name for each in options if each.verdict is Verdict.REFUSED]
    for name in refused:
        with pytest.raises(OptionError) as caught:
            parse({**topic, name.lower(): "x"})
        assert name.lower().removeprefix("kafka.") in str(caught.value).lower()
    assert refused
