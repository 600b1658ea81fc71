"""The programs on a topic: the bulk load and `spark-cas`, as a user calls them."""

import json
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from spark_cas import open_log
from spark_cas.log import clock
from spark_cas.programs import bulk_load
from spark_cas.programs.bulk_load import main
from tests.kafka import clients
from tests.long import full
from tests.pages import ROOT
from tests.support.programs import run_cli, run_page
from tests.support.writing import records_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

CANARY = "hunter2"
DAYS_100_MS = 100 * 24 * 3600 * 1000


@pytest.fixture
def topic():
    return f"flights-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def address(broker, topic):
    return ("--bootstrap-servers", broker.bootstrap, "--topic", topic)


@pytest.fixture
def load(spark, capsys, tmp_path, address):
    """A function that loads a hundred rows within the shared session. It returns exit code, report and stderr."""
    file = tmp_path / "flights.parquet"
    rows = {"tail": [f"N{row % 10}" for row in range(100)], "number": list(range(100))}
    pq.write_table(pa.table(rows), file)
    command = ("--input", str(file), "--key", "tail", "--value", "CAST(number AS STRING)", *address)

    def load(*argv):
        code = main([*command, *argv], "bulk_load.py", lambda _: spark)
        out, told = capsys.readouterr()
        report = json.loads(out.splitlines()[-1])
        assert report["exit_code"] == code
        return code, report, told

    yield load
    spark.sparkContext._jsc.sc().clearJobGroup()


@pytest.fixture
def rows(broker, topic):
    """A function that returns all values of the topic, by partition."""

    def rows():
        with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
            return [
                [int(row["value"]) for _, row in records_in(log, partition)]
                for partition in range(log.layout().partitions)
            ]

    return rows


def shown(*argv):
    ended = run_cli(*argv)
    assert ended.code == 0, ended.err
    return [
        [cell.strip() for cell in line.strip("│").split("│")] for line in ended.out.splitlines() if line[0] == "│"
    ]


@pytest.mark.full
def test_a_load_as_a_whole_and_the_same_again(load, rows):
    command = ("--job", "whole", "--partitions", "3", "--atomic", "load")
    code, report, _ = load(*command)
    assert (code, report["status"], report["appended_rows"]) == (0, "complete", 100)
    held = rows()
    assert sorted(value for values in held for value in values) == list(range(100))
    code, report, _ = load(*command, "--verify")
    assert (code, report["already_complete"]) == (0, True)
    assert rows() == held


def test_a_load_again_and_a_foreign_record_in_between(load, rows, broker, topic, address):
    first = ("--job", "load-1", "--partitions", "4", "--log-option", "kafka.retry.backoff.ms=3")
    code, report, told = load(*first)
    assert (code, report["status"], report["appended_rows"]) == (0, "complete", 100)
    assert report["log"] == f"kafka://{broker.bootstrap}/{topic}"
    assert "100 rows appended" in told
    assert sorted(number for each in rows() for number in each) == list(range(100))
    code, report, told = load(*first)
    assert (code, report["already_complete"], report["appended_rows"]) == (0, True, 0)

    table = shown("offsets", *address)
    ends = {partition: int(end) for partition, _, end, _ in table}
    assert list(ends) == ["0", "1", "2", "3"]
    jobs = shown("progress", *address)
    assert sum(int(row[2]) for row in jobs) == 100
    assert {(row[0], row[6]) for row in jobs} == {("load-1", "yes")}

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "-1", partition=0)
    assert producer.flush(60) == 0
    before = rows()
    code, report, told = load("--job", "load-2", "--expected-offsets", json.dumps(ends))
    assert (code, report["status"], report["error"]) == (3, "refused", "CONFLICT")
    assert (rows(), report["partitions"]) == (before, [])

    trimmed = run_cli("trim", *address, "--partition", "0", "--before", "1")
    assert "partition 0 now starts at offset 1" in trimmed.out


def test_a_topic_that_was_made_anew_holds_nothing_of_a_complete_job(load, rows, broker, topic):
    command = ("--job", "load-1", "--partitions", "4")
    assert load(*command)[0] == 0
    admin = clients.admin_of(broker.bootstrap)  # keep a reference: its futures fail without it
    admin.delete_topics([topic])[topic].result(clients.SECONDS)
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        log.create(4)
    code, report, told = load(*command)
    assert (code, report["error"], report["rows"]) == (3, "TRUNCATED", 0)
    assert "planned on another log that had this name" in told
    assert rows() == [[]] * 4


def test_what_is_wrong_is_said_in_a_line_and_an_exit_code(load):
    code, _, told = load("--job", "load-1")
    assert (code, "[LOG_NOT_FOUND]" in told) == (6, True)
    code, report, told = load("--job", "load-1", "--log-option", f"kafka.sasl.jaas.config={CANARY}")
    assert (code, report["status"], report["log"]) == (2, "usage", "")
    assert "kafka.security.protocol" in told
    assert CANARY not in told + json.dumps(report)


def test_what_weakens_a_promise_is_told(load, broker, topic):
    created = ("--job", "load-1", "--partitions", "1", "--max-bytes-per-chunk", "2000")
    assert load(*created)[0] == 0
    clients.configure(broker.bootstrap, topic, retention_ms="604800000")
    code, _, told = load("--job", "load-2")
    assert code == 0
    assert "note: records whose timestamp is older than 7 days are deleted" in told


def test_a_load_names_the_partitioner_of_a_topic_that_another_client_filled(load, broker, topic):
    admin = clients.admin_of(broker.bootstrap)
    admin.create_topics([NewTopic(topic, 4)])[topic].result(clients.SECONDS)
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        assert log.layout().partitions == 4  # its brokers know the topic
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"0", f"N{number}")
    assert producer.flush(clients.SECONDS) == 0
    producer.close()

    named = ("--log-option", "partitioner=crc32")
    code, _, told = load("--job", "load-1", *named)
    assert (code, "sampled keys" in told) == (0, False)
    code, _, told = load("--job", "load-2")
    assert (code, "sampled keys" in told) == (0, False)
    with open_log(f"kafka://{broker.bootstrap}/{topic}") as log:
        keys = [{row["key"] for _, row in records_in(log, partition)} for partition in range(4)]
    assert sum(map(len, keys)) == 10
    code, report, _ = load("--job", "load-3", "--log-option", "partitioner=murmur2")
    assert (code, report["error"], report["rows"]) == (2, "OPTION", 0)
    code, report, _ = load("--job", "load-1", "--log-option", "partitioner=murmur2")
    assert (code, report["error"], report["already_complete"]) == (2, "JOB_MISMATCH", True)


def test_a_load_is_told_of_keys_that_are_elsewhere(load, broker, topic):
    admin = clients.admin_of(broker.bootstrap)
    admin.create_topics([NewTopic(topic, 4)])[topic].result(clients.SECONDS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"0", f"N{number}")
    assert producer.flush(clients.SECONDS) == 0
    producer.close()
    code, _, told = load("--job", "load-1")
    assert (code, "partitioner=crc32" in told) == (0, True)


@pytest.mark.full
def test_log_that_is_away_is_tried_until_one_deadline(load, monkeypatch):
    """Port 1 of this machine is closed."""
    read_twice: list[str] = []
    monkeypatch.setattr(bulk_load, "rows_now", lambda _, job: read_twice.append(job))
    code, report, _ = load("--bootstrap-servers", "127.0.0.1:1", "--job", "away", "--partitions", "1")
    assert (code, report["error"], report["rows"], report["partitions"]) == (1, "STORAGE", None, None)
    assert read_twice == []


def test_limits_of_a_topic_decide_which_rows_are_bad(load, rows, broker, topic, tmp_path):
    settings = {"cleanup.policy": "compact", "max.message.bytes": "3000"}
    admin = clients.admin_of(broker.bootstrap)
    admin.create_topics([NewTopic(topic, 2, config=settings)])[topic].result(clients.SECONDS)
    bad = tmp_path / "bad.jsonl"
    value = "IF(number = 5, repeat('9', 3000), string(number))"
    command = ("--job", "load-1", "--key", "IF(number = 3, NULL, tail)", "--value", value)
    code, report, _ = load(*command)
    assert (code, report["error"] in ("SCHEMA", "RECORD_TOO_LARGE")) == (2, True)
    code, report, _ = load(*command, "--bad-rows", str(bad))
    assert (code, report["rows"], report["bad_rows"]) == (0, 98, 2)
    codes = {each["row"]: each["code"] for each in map(json.loads, bad.read_text().splitlines())}
    assert codes == {4: "NULL_KEY", 6: "TOO_LARGE"}
    assert sorted(value for values in rows() for value in values) == [
        each for each in range(100) if each not in (3, 5)
    ]


def test_limits_of_the_brokers_decide_which_rows_are_bad_in_a_new_topic(load, rows, tmp_path):
    """By default, brokers accept a batch of about 1 MB, and a chunk has up to 32 MB."""
    value = "IF(number = 5, repeat('9', 2000000), string(number))"
    command = ("--job", "load-1", "--partitions", "2", "--value", value, "--bad-rows", str(tmp_path / "bad.jsonl"))
    code, report, _ = load(*command)
    assert (code, report["rows"], report["bad_rows"]) == (0, 99, 1), report
    bad = json.loads((tmp_path / "bad.jsonl").read_text())
    assert (bad["row"], bad["code"]) == (6, "TOO_LARGE")
    assert sorted(value for values in rows() for value in values) == [each for each in range(100) if each != 5]
    code, report, _ = load(*command, "--verify")
    assert (code, report["already_complete"], report["bad_rows"]) == (0, True, 1)


@pytest.mark.usefixtures("load")
def test_commands_of_the_pages_run(spark, broker, topic, tmp_path, monkeypatch):
    """Load into a directory and a topic, save the state, verify, copy, expand and forget, as the pages describe."""
    monkeypatch.chdir(tmp_path)
    flights = pa.table({"tailnum": ["N0", "N1", "N2"], "time_hour": [3, 1, 2]})
    pq.write_table(flights, "flights.parquet")
    own = {"/data/": f"{tmp_path}/", "localhost:9092": broker.bootstrap, "--topic flights": f"--topic {topic}"}
    [loaded] = run_page("docs/loading.md", own, spark)
    assert (loaded.code, json.loads(loaded.out.splitlines()[-1])["rows"]) == (0, 3), loaded.err

    ended = run_page("docs/bootstrap.md", own, spark)
    assert [each.code for each in ended] == [0, 0, 0], ended
    first, second, verified = (json.loads(each.out.splitlines()[-1]) for each in ended)
    assert (first["rows"], second["rows"], verified["actual_rows"]) == (3, 3, 3)
    assert second["state"].startswith(f"{tmp_path}/state/tuesday/")

    page = (ROOT / "docs/loading.md").read_text()
    into, lz4 = "--bootstrap-servers localhost:9092 --topic flights", "--log-option kafka.compression.type=lz4"
    documented = [lz4, "--bad-rows bad.jsonl", "--report load.html"]
    assert [each for each in (into, *documented) if f"`{each}`" not in page] == []
    too_large = pa.table({"tailnum": ["N" * 2000], "time_hour": [4]})
    pq.write_table(pa.concat_tables([flights, too_large]), "flights.parquet")
    more = [*" ".join(documented).split(), "--max-bytes-per-chunk", "1000"]
    [loaded] = run_page("docs/loading.md", {"--log /data/logs/flights": into} | own, spark, *more)
    report = json.loads(loaded.out.splitlines()[-1])
    assert (loaded.code, report["rows"], report["bad_rows"]) == (0, 3, 1), loaded.err
    assert [json.loads(each)["code"] for each in Path("bad.jsonl").read_text().splitlines()] == ["TOO_LARGE"]
    assert "flights-2013" in Path("load.html").read_text()

    [copied] = run_page("docs/streams.md", {"9092/flights": f"9092/{topic}"} | own, spark)
    assert (copied.code, json.loads(copied.out.splitlines()[-1])["rows"]) == (0, 3), copied.err
    with open_log(str(tmp_path / "logs/flights-copy")) as log:
        assert sorted(row["key"] for each in range(4) for _, row in records_in(log, each)) == [b"N0", b"N1", b"N2"]

    expanded = run_page("docs/expansion.md", own)
    assert [each.code for each in expanded] == [0, 0], expanded
    for address in (str(tmp_path / "logs/flights"), f"kafka://{broker.bootstrap}/{topic}"):
        with open_log(address) as log:
            assert log.layout().partitions == 8
            kept = [row for partition in range(8) for _, row in records_in(log, partition)]
            assert log.jobs() == ("flights-2013",)
        assert sorted(row["key"] for row in kept) == [b"N0", b"N1", b"N2"]

    later, own["host:9092"], own["load-2026-11-22"] = clock.now_ms() + DAYS_100_MS, broker.bootstrap, "flights-2013"
    monkeypatch.setattr(clock, "now_ms", lambda: later)
    forgotten = run_page("docs/kafka.md", own)
    assert [each.code for each in forgotten] == [0, 0], forgotten
    for address in (str(tmp_path / "logs/flights"), f"kafka://{broker.bootstrap}/{topic}"):
        with open_log(address) as log:
            assert log.jobs() == ()


@pytest.fixture
def letters(broker, topic):
    """The name of a topic for bad rows, and a function that creates it."""
    name = f"{topic}-bad"

    def create(**config):
        admin = clients.admin_of(broker.bootstrap)  # keep a reference: its futures fail without it
        admin.create_topics([NewTopic(name, 1, config=config)])[name].result(clients.SECONDS)
        return f"kafka://{broker.bootstrap}/{name}"

    return create


BAD = ("--job", "load-1", "--partitions", "2", "--value", "IF(number % 40 = 5, NULL, string(number))")


def test_bad_rows_in_a_topic(load, rows, letters):
    """The producer of the bad rows has the settings of the load, here its transactional ids."""
    address = letters()
    command = (*BAD, "--bad-rows", address, "--log-option", "idPrefix=team")
    code, report, _ = load(*command)
    assert (code, report["rows"], report["bad_rows"]) == (0, 97, 3)
    with open_log(address, {"idPrefix": "team"}) as log:
        completion = log.completion("load-1.bad-rows")
        records = [record for _, record in records_in(log, 0)]
    assert completion is not None
    assert [json.loads(each["value"])["number"] for each in records] == [5, 45, 85]
    headers = [{each["key"]: each["value"].decode() for each in record["headers"]} for record in records]
    assert [each["spark_cas.row"] for each in headers] == ["6", "46", "86"]
    assert {(each["spark_cas.code"], each["spark_cas.job"]) for each in headers} == {("NULL_VALUE", "load-1")}
    code, report, _ = load(*command)
    assert (code, report["already_complete"], report["bad_rows"]) == (0, True, 3)
    code, report, _ = load(*command, "--verify")
    assert (code, report["verified"], report["bad_rows"]) == (0, True, 3)
    with open_log(address) as log:
        assert len(records_in(log, 0)) == 3
    assert sum(map(len, rows())) == 97


@pytest.mark.parametrize("problem", ["absent", "compacted", *full("same", "too large")])
def test_topic_that_does_not_take_bad_rows_fails_the_load(load, letters, broker, topic, problem):
    value = "IF(number = 5, repeat('9', 5000), string(number))"
    command = ["--job", "load-1", "--value", value, "--log-option", "kafka.max.request.size=4000"]
    if problem == "absent":
        address = f"kafka://{broker.bootstrap}/{topic}-absent"
    elif problem == "same":
        address = f"kafka://{broker.bootstrap}/{topic}"
    else:
        settings = {"cleanup.policy": "compact"} if problem == "compacted" else {"max.message.bytes": "150"}
        address = letters(**settings)
    admin = clients.admin_of(broker.bootstrap)
    admin.create_topics([NewTopic(topic, 2)])[topic].result(clients.SECONDS)
    code, report, _ = load(*command, "--bad-rows", address)
    assert (code, report["rows"]) == (2, 0)
    assert report["error"] == ("RECORD_TOO_LARGE" if problem == "too large" else "UsageError")
    assert address in report["message"]


@pytest.mark.full
def test_bad_rows_go_to_another_cluster_without_the_settings_of_the_load(load, letters, own_broker, broker, topic):
    admin = clients.admin_of(own_broker.bootstrap)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(clients.SECONDS)
    address = f"kafka://{own_broker.bootstrap}/{topic}"
    code, report, _ = load(*BAD, "--bad-rows", address, "--log-option", "idPrefix=team")
    assert (code, report["bad_rows"]) == (0, 3)
    with open_log(address) as log:
        assert log.completion("load-1.bad-rows") is not None
        assert len(records_in(log, 0)) == 3
