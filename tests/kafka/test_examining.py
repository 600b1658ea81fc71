"""`spark-cas doctor` on brokers: it finds each planted problem of a cluster, and nothing on a healthy one."""

import os
import shlex
import socket
import subprocess
import sys
import uuid
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaException, Node, TopicCollection, TopicPartitionInfo, Uuid
from confluent_kafka.admin import (
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    TopicDescription,
    UserScramCredentialUpsertion,
)

from spark_cas import open_log
from spark_cas.core.errors import UndecidedError
from spark_cas.core.finding import Problem, Severity
from spark_cas.log import clock
from spark_cas.log.doctor import transaction_finding
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.accelerators import connections, librdkafka
from spark_cas.log.kafka.client.client_errors import Right, on_ids, on_topic
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.weak_settings import replica_findings
from spark_cas.programs.errors import ExitCode
from tests.kafka.clients import SECONDS, add_kafka_tool, admin_of, committed_values, create_topic
from tests.kafka.documented_rights import DOCTOR, FOREIGN, documented
from tests.kafka.open_transactions import OF_BROKER, Place, exact, hang, open_transaction, place_on
from tests.kafka.secured import PASSWORD, USER, sasl, secured_broker
from tests.long import full
from tests.support.loads import TEN, run_job
from tests.support.planted_problems import (
    idle_stream,
    lock_of_ended_process,
    only,
    report_on,
    undecided_load,
    unfinished_expansion,
    unfinished_job,
)
from tests.support.programs import run_cli, run_page
from tools.kafka_broker.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

HOUR_MS = 3_600_000
OF_ONE_BROKER = {"REPLICATION_FACTOR"}
LIBRARY = librdkafka.library


@pytest.fixture(autouse=True)
def _library_found(monkeypatch):
    """Undo `--one-by-one`, which doctor would report."""
    monkeypatch.setattr(librdkafka, "library", LIBRARY)


@pytest.fixture
def place(sick):
    return place_on(sick.bootstrap)


@pytest.fixture
def later(monkeypatch):
    """A function that moves the clock of this process forward."""
    now_ms = clock.now_ms

    def moved(milliseconds):
        monkeypatch.setattr(clock, "now_ms", lambda: now_ms() + milliseconds)

    return moved


def test_healthy_cluster_has_no_finding(cluster):
    place = place_on(cluster.bootstrap)
    with KafkaLog(place.spec) as log:
        run_job(log, "done", TEN)
    report = place.report()
    assert (report.code, report.status, report.problems) == (0, "ok", {})
    assert set(report.environment["accelerators"].values()) == {True}
    assert report.environment["versions"]["kafka-python"]


def test_unused_accelerators_are_found(cluster, monkeypatch):
    monkeypatch.setattr(librdkafka, "library", lambda: None)
    monkeypatch.setattr(connections, "can_follow", lambda: False)
    monkeypatch.delattr(socket, "TCP_QUICKACK", raising=False)
    report = place_on(cluster.bootstrap).report()
    assert (report.code, report.status, [*report.problems]) == (0, "ok", ["ACCELERATOR_UNUSED"])
    assert report.environment["accelerators"] == {"array_producer": False, "connections": False, "quick_ack": False}
    found = report.problems["ACCELERATOR_UNUSED"]
    assert {each["severity"] for each in found} == {"info"}
    client = "pip install --only-binary :all: 'confluent-kafka==2.16.*'"
    assert {each["subject"].removeprefix("accelerator "): each["fix"] for each in found} == {
        "array_producer": client,
        "connections": client,
        "quick_ack": "run on Linux",
    }


def test_weak_settings_of_a_broker_are_found(place):
    report = place.report()
    assert report.code == 8
    assert {*report.problems} == {*OF_BROKER} | OF_ONE_BROKER
    assert {each["subject"] for each in report.problems["REPLICATION_FACTOR"]} >= {f"topic {place.spec.topic}"}


@pytest.mark.parametrize(
    ("config", "problem", "severity"),
    [
        ({"unclean_leader_election_enable": "true"}, "UNCLEAN_LEADER_ELECTION", "warning"),
        ({"min_insync_replicas": "1"}, "MIN_INSYNC_REPLICAS", "warning"),
        ({"retention_ms": "172800000"}, "RETENTION", "info"),
        ({"retention_bytes": "12345"}, "RETENTION", "info"),
        ({"cleanup_policy": "compact"}, "COMPACTION", "info"),
    ],
)
def test_weak_setting_of_a_topic_is_found_alone(cluster, config, problem, severity):
    place = place_on(cluster.bootstrap, **config)
    report = place.report()
    assert report.code == (8 if severity == "warning" else 0)
    assert [*report.problems] == [problem]
    finding = only(report.problems[problem])
    assert (finding["severity"], finding["subject"]) == (severity, f"topic {place.spec.topic}")
    assert place.spec.topic in finding["fix"]


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A function that runs a printed command in a shell that has the tools of Kafka, in a new folder."""
    for name, main in (
        ("kafka-configs.sh", "kafka.admin.ConfigCommand"),
        ("kafka-reassign-partitions.sh", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    ):
        add_kafka_tool(tmp_path, name, main)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def run(command):
        ended = subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return run


@pytest.mark.parametrize("problem", ["RETENTION", *full("COMPACTION")])
def test_printed_command_of_kafka_changes_the_setting(secured, shell, tmp_path, problem):
    topic = create_topic(secured.open, cleanup_policy="compact,delete", retention_ms="172800000")
    secured.allow([*to_report(topic), Right("AlterConfigs", "topic", topic)])
    arguments = ["--bootstrap-servers", secured.sasl, "--topic", topic, "--log-option", f"idPrefix={topic}"]
    arguments += options_of(sasl())
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in sasl().items()))

    shell(only(report_on(*arguments).problems[problem])["fix"].removeprefix("to keep all records: "))
    wait_until(lambda: problem not in report_on(*arguments).problems, SECONDS, lambda: f"{problem} stays")


def test_printed_command_of_kafka_adds_replicas(cluster, shell):
    topic = f"replicas-{uuid.uuid4().hex}"
    admin = admin_of(cluster.bootstrap)
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(SECONDS)
    place = Place(KafkaSpec(cluster.bootstrap, topic, topic))
    shell(only(place.report().problems["REPLICATION_FACTOR"])["fix"])
    wait_until(lambda: place.report().problems == {}, SECONDS, lambda: str(place.report().problems))
    partitions = admin.describe_topics(TopicCollection([topic]))[topic].result(SECONDS).partitions
    assert [len(each.replicas) for each in partitions] == [3] * 4


def test_replicas_need_more_brokers():
    node = Node(1, "localhost", 9092)
    partitions = [TopicPartitionInfo(0, node, [node], [node])]
    [finding] = replica_findings(TopicDescription("flights", Uuid(0, 1), False, partitions), None, [1])
    assert (finding.problem, "kafka-" in finding.fix) == (Problem.REPLICATION_FACTOR, False)


def test_registry_that_expires_is_found(cluster):
    place = place_on(cluster.bootstrap)
    name = place.spec.registry_topic
    admin = admin_of(cluster.bootstrap)
    admin.create_topics([NewTopic(name, 1, config={"retention.ms": "1000000"})])[name].result(SECONDS)
    report = place.report()
    assert (report.code, [*report.problems]) == (9, ["REGISTRY_EXPIRES"])
    assert name in only(report.problems["REGISTRY_EXPIRES"])["fix"]


@pytest.mark.parametrize(
    ("plant", "hours", "problem"),
    [
        (lock_of_ended_process, 0, "LOAD_LOCK"),
        (unfinished_expansion, 0, "UNFINISHED_EXPANSION"),
        (unfinished_job, 2, "UNFINISHED_JOB"),
        (unfinished_job, 13, "LEDGER_EXPIRES"),
        (idle_stream, 13, "LEDGER_EXPIRES"),
    ],
)
def test_problem_of_a_job_is_found(place, later, plant, hours, problem):
    """Ledger entries expire after 24 h on this broker."""
    with KafkaLog(place.spec) as log:
        plant(log)
    later(hours * HOUR_MS)
    report = place.report()
    assert {*report.problems} == {*OF_BROKER, problem} | OF_ONE_BROKER
    finding = only(report.problems[problem])
    assert finding["severity"] == ("error" if plant is unfinished_expansion else "warning")
    if problem == "LEDGER_EXPIRES":
        assert "stream" in finding["fix"] or plant is not idle_stream
        assert 10 * HOUR_MS < finding["details"]["left_ms"] <= 11 * HOUR_MS


def test_undecided_load_is_found(place):
    with KafkaLog(place.spec) as log:
        undecided_load(log)
        report = place.report()
        load = only(report.problems["UNDECIDED_LOAD"])
        assert load["details"]["transactional_id"] == place.spec.id_of_atomic_load("whole")
        assert load["fix"].startswith("if the load does not run any more: spark-cas abort whole ")
    assert run_cli(*shlex.split(load["fix"].rpartition("spark-cas ")[2])).code == 0
    assert "UNDECIDED_LOAD" not in place.report().problems


def test_undecided_load_with_ledger_entries_is_one_finding(place, monkeypatch):
    """The brokers do not return a ledger entry that an open transaction has."""

    def undecided(*_, **__):
        raise UndecidedError("the entry is not decided")

    with KafkaLog(place.spec) as log:
        undecided_load(log)
        monkeypatch.setattr(KafkaLog, "progress_of", undecided)
        assert "transactional_id" in only(place.report().problems["UNDECIDED_LOAD"])["details"]


def test_open_transaction_of_another_producer_is_found_and_stays(place):
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:
        finding = only(place.report().problems["OPEN_TRANSACTION"])
        assert finding["severity"] == "info"
        details = finding["details"]
        assert details["transactional_id"] == f"other-{place.spec.topic}"
        assert (details["own"], details["coordinator"], details["timeout_ms"]) == (False, 1, 60_000)
        assert details["partitions"] == [{"topic": place.spec.topic, "partition": 0, "start_offset": 0}]
        assert "coordinator broker 1, is open" in run_cli("doctor", *place.arguments).out
        producer.commit_transaction(SECONDS)
    assert "OPEN_TRANSACTION" not in place.report().problems
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == ["open"]


def test_overdue_transaction_is_a_warning(place, later):
    with open_transaction(place.spec, f"other-{place.spec.topic}", timeout_ms=600_000):
        later(HOUR_MS)
        assert only(place.report().problems["OPEN_TRANSACTION"])["severity"] == "warning"
        assert place.abort(*exact(place.transactions()[0]), "--yes").code == 0


def test_own_transaction_is_found_and_aborted_by_fencing(place):
    own_id = place.spec.id_of_partition(0, "job")
    other_id = f"other-{place.spec.topic}"
    with open_transaction(place.spec, own_id) as producer, open_transaction(place.spec, other_id) as other:
        [finding] = [each for each in place.report().problems["OPEN_TRANSACTION"] if each["details"]["own"]]
        assert finding["fix"].endswith(" --abort")
        ended = place.abort()
        assert (ended.code, own_id in ended.out) == (0, True)
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS)
        [left] = place.transactions()
        assert left.transactional_id == other_id
        other.commit_transaction(SECONDS)
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == ["open"]
    assert "no open transaction" in place.abort().out


def test_transaction_of_another_producer_needs_exact_ids_and_a_confirmation(place):
    with open_transaction(place.spec, f"other-{place.spec.topic}") as producer:
        [transaction] = place.transactions()
        producer_id, epoch = f"{transaction.producer_id}", f"{transaction.producer_epoch}"
        wrong = [
            ["--producer-id", f"{transaction.producer_id + 1}", "--producer-epoch", epoch, "--partition", "0"],
            [
                "--producer-id",
                producer_id,
                "--producer-epoch",
                f"{transaction.producer_epoch + 1}",
                "--partition",
                "0",
            ],
            ["--producer-id", producer_id, "--producer-epoch", epoch, "--partition", "1"],
        ]
        for arguments in wrong:
            assert place.abort(*arguments, "--yes").code == 2
        assert place.abort(*exact(transaction)).code == 2, "without a confirmation"
        assert place.transactions() == (transaction,)
        ended = place.abort(*exact(transaction), "--yes")
        assert (ended.code, producer_id in ended.out) == (0, True)
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS)
    wait_until(lambda: not place.transactions(), SECONDS, lambda: "the transaction is still open")
    assert committed_values(place.spec.bootstrap_servers, place.spec.topic) == []


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_confirmation_on_a_terminal(place, monkeypatch, answer, code):
    with open_transaction(place.spec, f"other-{place.spec.topic}"):
        [transaction] = place.transactions()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: f"{answer}\n"))
        monkeypatch.setattr("builtins.input", lambda _: answer)
        assert place.abort(*exact(transaction)).code == code
        assert len(place.transactions()) == (0 if code == 0 else 1)


def test_without_kafka_python_the_transactions_are_a_warning(cluster, monkeypatch):
    place = place_on(cluster.bootstrap)
    monkeypatch.setitem(sys.modules, "kafka", None)
    report = place.report()
    assert (report.code, report.status, [*report.problems]) == (8, "warning", ["TRANSACTIONS_UNREADABLE"])
    assert "pip install 'spark-cas[doctor]'" in only(report.problems["TRANSACTIONS_UNREADABLE"])["meaning"]
    ended = place.abort()
    assert (ended.code, "kafka-python" in ended.err) == (2, True)


def options_of(settings):
    return [text for name, value in settings.items() for text in ("--log-option", f"kafka.{name}={value}")]


CLUSTER_CONFIGS = Right("DescribeConfigs", "cluster", "kafka-cluster")


def to_report(topic):
    """Return the rights that docs/doctor.md names for a report, except those to settings of the whole cluster."""
    rights = documented(DOCTOR, "report", topic, topic)
    return [each for each in rights if each.kind != "cluster" and not each.name.startswith("__")]


def test_transactions_are_listed_over_tls_and_with_sasl(secured):
    topic = create_topic(secured.open)
    secured.allow(to_report(topic))
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.certificate),
    }
    with open_transaction(KafkaSpec(secured.open, topic), f"other-{topic}") as producer:
        for address, settings in ((secured.tls, tls), (secured.sasl, sasl())):
            brokers = ["--bootstrap-servers", address, "--topic", topic, "--log-option", f"idPrefix={topic}"]
            report = report_on(*brokers, *options_of(settings))
            found = only(report.problems["OPEN_TRANSACTION"])
            assert found["details"]["transactional_id"] == f"other-{topic}"
            assert "UNREADABLE" not in report.problems
            assert PASSWORD not in str(report)
        assert "SETTINGS_UNREADABLE" in report.problems
        producer.commit_transaction(SECONDS)


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.full
def test_transactions_are_listed_with_scram_and_with_a_client_certificate(conf, tmp_path):
    settings = {
        "super.users": f"User:ANONYMOUS;User:{USER};User:CN=127.0.0.1",
        "listener.name.sasl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(tmp_path / "cert.pem"),
    }
    scram = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} username="{USER}" password="{PASSWORD}";',
    }
    tls = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "cert.pem"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "store.pem"),
    }
    with secured_broker(conf, tmp_path, **settings) as secured:
        admin = admin_of(secured.open)
        user = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin.alter_user_scram_credentials([user])[USER].result(SECONDS)
        topic = create_topic(secured.open)
        with open_transaction(KafkaSpec(secured.open, topic), f"other-{topic}") as producer:
            for address, given in ((secured.sasl, scram), (secured.tls, tls)):
                report = report_on("--bootstrap-servers", address, "--topic", topic, *options_of(given))
                found = only(report.problems["OPEN_TRANSACTION"])
                assert found["details"]["transactional_id"] == f"other-{topic}"
            producer.commit_transaction(SECONDS)


def test_rights_to_abort_a_hanging_transaction_are_necessary_and_sufficient(secured, watch):
    topic = create_topic(secured.open)
    place = Place(KafkaSpec(secured.sasl, topic, topic))
    login = options_of(sasl())
    hang(KafkaSpec(secured.open, topic))
    [transaction] = Place(KafkaSpec(secured.open, topic, topic)).transactions()
    rights = [
        CLUSTER_CONFIGS,
        on_topic("Describe", "__transaction_state"),
        Right("Alter", "cluster", "kafka-cluster"),
    ]
    of_listed = Right("Write", "transactional-id", FOREIGN)
    assert {*documented(DOCTOR, "abort", topic, topic)} == {*rights, of_listed}
    for count, code in ((0, 2), (1, 2), (2, 1)):
        secured.allow([*to_report(topic), *rights[:count]])
        denied = place.abort(*exact(transaction), "--yes", *login)
        assert (denied.code, rights[count].operation in denied.err) == (code, True)
    secured.allow([*to_report(topic), *rights])
    assert place.abort(*exact(transaction), "--yes", *login).code == 0


@pytest.mark.parametrize("own", [False, True])
def test_abort_of_a_listed_transaction_needs_write_on_its_id(secured, own):
    topic = create_topic(secured.open)
    place = Place(KafkaSpec(secured.sasl, topic, topic))
    name = place.spec.id_of_partition(0, "job") if own else f"other-{topic}"
    right = on_ids("Write", topic) if own else Right("Write", "transactional-id", name)
    with open_transaction(KafkaSpec(secured.open, topic), name) as producer:
        [transaction] = Place(KafkaSpec(secured.open, topic, topic)).transactions()
        command = [*exact(transaction), "--yes", *options_of(sasl())]
        secured.allow(to_report(topic))
        denied = place.abort(*command)
        assert (denied.code, f"lacks an ACL: {right}." in denied.err) == (ExitCode.ACCESS_DENIED, True), denied
        secured.allow([*to_report(topic), right])
        assert place.abort(*command).code == 0
        with pytest.raises(KafkaException):
            producer.commit_transaction(SECONDS)


def test_each_missing_right_of_a_report_gives_its_finding(secured):
    """Without Read on the topic, which includes Describe, there is no report."""
    topic = create_topic(secured.open)
    with KafkaLog(KafkaSpec(secured.open, topic, topic)) as log:
        unfinished_job(log)
    brokers = ["--bootstrap-servers", secured.sasl, "--topic", topic, "--log-option", f"idPrefix={topic}"]
    brokers += options_of(sasl())
    rights = documented(DOCTOR, "report", topic, topic)
    with open_transaction(KafkaSpec(secured.open, topic), f"other-{topic}") as producer:

        def added(missing):
            """Return the findings that there are only without a right."""
            secured.allow(each for each in rights if each != missing)
            found = [each for group in report_on(*brokers).problems.values() for each in group]
            return [each for each in found if (each["problem"], each["subject"]) not in usual]

        usual: set[tuple[str, str]] = set()
        usual = {(each["problem"], each["subject"]) for each in added(None)}
        problems = {problem for problem, _ in usual}
        assert problems & {"OPEN_TRANSACTION", "SETTINGS_UNREADABLE", "UNREADABLE"} == {"OPEN_TRANSACTION"}
        for right in rights:
            if right == on_topic("Read", topic):
                secured.allow(each for each in rights if each != right)
                denied = run_cli("doctor", *brokers)
                assert (denied.code, topic in denied.err) == (ExitCode.ACCESS_DENIED, True)
            elif right.kind == "transactional-id":
                assert [each["problem"] for each in added(right)] == ["HANGING_TRANSACTION"]
            elif right.operation == "DescribeConfigs":
                found = added(right)
                assert {each["problem"] for each in found} == {"SETTINGS_UNREADABLE"}
                assert all(right.operation in each["fix"] for each in found)
            else:
                found = added(right)
                assert found
                assert {each["problem"] for each in found} <= {"SETTINGS_UNREADABLE", "UNREADABLE"}
                assert [each for each in found if right.name not in f"{each['meaning']} {each['fix']}"] == [], right
        producer.commit_transaction(SECONDS)


def test_missing_right_to_list_transactions_is_a_warning(secured):
    topic = create_topic(secured.open)
    kept = [each for each in to_report(topic) if each.operation != "Read"]
    secured.allow([*kept, on_topic("Describe", topic)])
    brokers = ["--bootstrap-servers", secured.sasl, "--topic", topic, "--log-option", f"idPrefix={topic}"]
    finding = only(report_on(*brokers, *options_of(sasl())).problems["TRANSACTIONS_UNREADABLE"])
    assert (finding["severity"], "lacks an ACL" in finding["meaning"]) == ("warning", True)


def test_severity_of_a_transaction_follows_its_timeout(place):
    with open_transaction(place.spec, place.spec.id_of_partition(0, "job")):
        [transaction] = place.transactions()
        for age_ms, severity in ((59_000, Severity.INFO), (61_000, Severity.WARNING)):
            finding = transaction_finding(place.spec.topic, transaction, transaction.since_ms + age_ms)
            assert finding.severity is severity
        place.abort()


def test_unknown_minimum_of_replicas_is_not_made_up():
    nodes = [Node(each, "127.0.0.1", 9092) for each in (1, 2, 3)]
    partition = TopicPartitionInfo(0, nodes[0], nodes, nodes[:1])
    [finding] = replica_findings(TopicDescription("flights", Uuid(0, 1), False, [partition]), None, [1])
    assert finding.problem is Problem.REPLICAS_OUT_OF_SYNC
    assert "not known" in finding.meaning


def test_jobs_of_a_topic_are_listed(place):
    with KafkaLog(place.spec) as log:
        run_job(log, "done", TEN)
        unfinished_job(log)
    shown = run_cli("jobs", *place.arguments)
    assert shown.code == 0
    assert [word in shown.out for word in ("done", "complete", "killed", "incomplete")] == [True] * 4


def test_commands_of_the_page_run(sick, tmp_path):
    admin = admin_of(sick.bootstrap)
    admin.create_topics([NewTopic("flights", 1)])["flights"].result(SECONDS)
    with open_log(str(tmp_path / "logs/flights")) as log:
        log.create(1)
    ended = run_page("docs/doctor.md", {"/data/": f"{tmp_path}/", "localhost:9092": sick.bootstrap})
    assert len(ended) > 4
    assert [each for each in ended if each.code not in {0, 8}] == []
