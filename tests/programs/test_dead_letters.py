"""Whether `--bad-rows` names a log, and the options of its write."""

import pytest

from spark_cas.options.parse import parse_load
from spark_cas.programs.bad_rows import dead_letters_of, is_log

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
SECRET = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": LOGIN,
    "idprefix": "team",
}
LOAD = {"path": "kafka://a:9092,b:9092/flights", "job": "load-1", "expectedOffsets": "none", **SECRET}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, False),
        ("bad.jsonl", False),
        ("/data/bad.jsonl", False),
        ("/dev/stdout", False),
        ("kafka://host:9092/bad", True),
        ("s3://bucket/bad", True),
        ("FILE:/data/bad", True),
        (".", True),
    ],
)
def test_folders_and_urls_are_logs(target, expected):
    assert is_log(target) == expected


@pytest.mark.parametrize(
    ("target", "inherits"),
    [
        ("kafka://b:9092,a:9092/bad", True),
        ("kafka://a:9092/bad", False),
        ("kafka://c:9092/bad", False),
        ("file:/data/bad", False),
    ],
)
def test_only_the_same_brokers_get_the_settings_of_the_load(target, inherits):
    letters = dead_letters_of(target, parse_load(LOAD), "load-1")
    assert letters is not None
    assert (letters.options.items() >= SECRET.items()) == inherits
    assert "hunter2" not in repr(letters)
    assert letters.write.job == "load-1.bad-rows"
    assert letters.write.expected_offsets.mode == "none"
    assert letters.write.spec.topic == "bad"


def test_only_the_same_bucket_gets_the_settings_of_the_load():
    load = parse_load({"path": "s3://one/flights", "job": "j", "store.aws_region": "eu-central-1"})
    one, two = (dead_letters_of(f"s3://{bucket}/bad", load, "j") for bucket in ("one", "two"))
    assert one is not None
    assert two is not None
    assert ("store.aws_region" in one.options, "store.aws_region" in two.options) == (True, False)
