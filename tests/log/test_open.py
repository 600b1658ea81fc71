"""Open a backend by address."""

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spark_cas.core.errors import OptionError
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.objects import ObjectLog
from spark_cas.log.open import open_log, parse_address
from spark_cas.log.spec import LogSpec

ROOT = Path(__file__).parents[2]
TOPIC = KafkaSpec("127.0.0.1:1", "flights", client_options=(("batch.size", "5"),))


def test_an_address_finds_its_backend(tmp_path):
    assert isinstance(parse_address("s3://bucket/flights", {"aws_region": "x"}), LogSpec)
    assert parse_address("kafka://127.0.0.1:1/flights", {"batch.size": "5"}) == TOPIC
    assert parse_address(TOPIC.url, {"batch.size": "5"}) == TOPIC
    assert isinstance(open_log(str(tmp_path / "kafka")), ObjectLog)
    with open_log(TOPIC) as log:
        assert isinstance(log, KafkaLog)
        assert (log.topic, log.spec) == ("flights", TOPIC)


def test_topic_can_have_the_prefix_of_its_team():
    spec = parse_address("kafka://127.0.0.1:1/flights", {"batch.size": "5", "idPrefix": "team"})
    assert spec == replace(TOPIC, prefix="team")
    with pytest.raises(OptionError, match="idPrefix"):
        parse_address("kafka://127.0.0.1:1/flights", {"idPrefix": "a/b"})


def test_an_address_that_is_none_shows_no_value():
    with pytest.raises(OptionError) as refused:
        open_log("kafka://me:hunter2@host:9092/flights")
    assert "hunter2" not in str(refused.value)


def test_a_spec_is_the_same_after_a_round_trip():
    assert pickle.loads(pickle.dumps(TOPIC)) == TOPIC  # noqa: S301 - made here
    assert "batch" not in repr(TOPIC)


def test_read_only_access_has_shorter_timeouts():
    look, patient = TOPIC.with_patience(10), TOPIC.with_patience(10**9)
    assert isinstance(look, KafkaSpec)
    assert isinstance(patient, KafkaSpec)
    assert (look.patience_seconds, look.open_transaction_wait_ms, look.url) == (0.01, 10, TOPIC.url)
    assert (patient.patience_seconds, patient.open_transaction_wait_ms) == (
        TOPIC.patience_seconds,
        TOPIC.open_transaction_wait_ms,
    )
    path = LogSpec.parse("/data/flights")
    assert path.with_patience(10) == replace(path, patience_ms=10)
    assert path.with_patience(10**9) == path


def loads_kafkas_client(statement):
    program = f"import sys\n{statement}\nsys.exit('confluent_kafka' in sys.modules)"
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 1


def test_kafkas_client_is_loaded_for_topics_only(tmp_path):
    imports = "import spark_cas.spark.source, spark_cas.cli\nfrom spark_cas.log.open import open_log, parse_address\n"
    assert not loads_kafkas_client(f"{imports}parse_address({TOPIC.url!r})\nopen_log({str(tmp_path)!r})")
    assert loads_kafkas_client(f"{imports}open_log({TOPIC.url!r})")
