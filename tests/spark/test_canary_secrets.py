"""No secret in an option reaches an event log, a plan, the SQL tab, an error, a report, a ledger or a registry."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from spark_cas.log.kafka.client.client_errors import Right
from spark_cas.programs.bulk_load import main
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.secured import PASSWORD, USER, WRONG, sasl, secured_broker
from tools.ports import held_ports

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
KEY = base64.b64encode(b"canary-account-key-0123456789").decode()
PEM = "-----BEGIN PRIVATE KEY----- canary-ssl-key -----END PRIVATE KEY-----"
CANARIES = [PASSWORD, WRONG, KEY, "canary-ssl-key", "canary-sas", "canary-key-password"]
AZURE = "az://container/log"


def rights(topic):
    """Return all rights of a write. The user may also create the topics of the registry."""
    topics = [
        Right(each, "topic", f"{topic}", prefixed=True) for each in ("Read", "Write", "Create", "DescribeConfigs")
    ]
    group = Right("Read", "group", topic, prefixed=True)
    return [*topics, group, Right("Write", "transactional-id", topic, prefixed=True)]


def on_azure(port):
    """Return the options of a container on a port of this machine."""
    return {
        "store.azure_storage_account_name": "account",
        "store.azure_storage_account_key": KEY,
        "store.azure_storage_endpoint": f"http://127.0.0.1:{port}",
        "store.allow_http": "true",
        "store.retry_timeout": "1000ms",
    }


@pytest.fixture(scope="module")
def application(conf, tmp_path_factory):
    """Run the application with the settings of `conf`. Return its output, event log, stored records and broker."""
    folder = tmp_path_factory.mktemp("canary")
    (folder / "events").mkdir()
    with secured_broker(conf, folder) as secured, held_ports(1) as [closed]:
        topic = create_topic(secured.open)
        secured.allow(rights(topic))
        login = {f"kafka.{name}": value for name, value in sasl().items()}
        options = {"kafka.bootstrap.servers": secured.sasl, "topic": topic, "idPrefix": topic, "job": "load"} | login
        ssl = {
            "kafka.bootstrap.servers": secured.tls,
            "topic": topic,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": "canary-ssl-key",
            "kafka.ssl.keystore.key": PEM,
            "kafka.ssl.key.password": "canary-key-password",
        }
        azure = {"path": AZURE, **on_azure(closed)}
        sas = azure | {"store.azure_storage_sas_key": "sv=1&sig=canary-sas"}
        command = [sys.executable, str(Path(__file__).with_name("canary_driver.py"))]
        ended = subprocess.run(
            [*command, json.dumps(options), json.dumps([ssl, azure, sas]), str(folder / "events")],
            cwd=folder,
            env=os.environ
            | {"PYTHONPATH": str(ROOT), "SPARK_CONF_DIR": str(ROOT / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.stdout.endswith("done\n"), ended.stdout + ended.stderr
        yield ended.stdout + ended.stderr, folder / "events", stored(secured.open), secured


def stored(address):
    """Return the bytes of all records of a broker, and so of its ledgers and registries."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "canary", "isolation.level": "read_uncommitted"})
    topics = reader.list_topics(timeout=SECONDS).topics
    parts = [TopicPartition(name, each, 0) for name, topic in topics.items() for each in topic.partitions]
    reader.assign(parts)
    result = [name.encode() for name in topics]
    while message := reader.poll(3):
        result += [message.key() or b"", message.value() or b""]
    reader.close()
    return b"\n".join(result)


def shown(text):
    return [each for each in CANARIES if each in text]


def test_errors_and_plans_and_the_sql_tab_show_no_secret(application):
    output, *_ = application
    assert "conditional-log" in output
    assert shown(output) == []


def test_event_log_has_no_secret(application):
    _, events, *_ = application
    text = "".join(each.read_text() for each in events.rglob("*") if each.is_file())
    assert "SparkListenerSQLExecutionStart" in text
    assert "kafka.bootstrap.servers" in text, "the options are in the event log"
    assert shown(text) == []


def test_ledger_and_registry_have_no_secret(application):
    _, _, records, _ = application
    assert b"/plan/load" in records
    assert b'"log_id"' in records
    assert shown(records.decode(errors="replace")) == []
    assert USER not in records.decode(errors="replace")


def test_reports_metrics_and_lineage_of_loads_have_no_secret(spark, application, tmp_path, monkeypatch, capsys):
    """Run a load, its rerun, and loads with a wrong login, option or store.

    Each load also prints its JSON report.
    """
    *_, secured = application
    events, metrics, config = (tmp_path / name for name in ("events.json", "metrics.prom", "openlineage.yml"))
    config.write_text(f"transport:\n  type: file\n  log_file_path: {events}\n  append: true\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(config))
    (tmp_path / "rows.txt").write_text("one\ntwo\n")
    topic = create_topic(secured.open)
    secured.allow(rights(topic))
    address = ["--bootstrap-servers", secured.sasl, "--topic", topic]
    logins = ({f"kafka.{name}": value for name, value in sasl(password=each).items()} for each in (PASSWORD, WRONG))
    right, wrong = ({**login, "idPrefix": topic} for login in logins)
    key = {"kafka.ssl.key.password": "canary-key-password", "kafka.ssl.keystore.key": PEM}
    with held_ports(1) as [closed]:
        loads = [
            (address, right, 0),
            (address, right, 0),
            (address, wrong, 1),
            (address, right | key, 2),
            (["--log", AZURE, "--partitions", "1"], on_azure(closed), 1),
        ]
        for number, (log, options, code) in enumerate(loads):
            report = tmp_path / f"{number}.html"
            command = ["--input", str(tmp_path / "rows.txt"), "--value", "value", "--job", "load-1", *log]
            command += [f"--log-option={name}={value}" for name, value in options.items()]
            command += ["--metrics", f"file:{metrics}", "--report", str(report)]
            assert main(command, "load", lambda _: spark) == code, number
            assert "load-1" in report.read_text()
    printed = capsys.readouterr()
    assert events.read_text().count("COMPLETE") == 2
    assert "spark_cas_rows_total" in metrics.read_text()
    files = [events, metrics, *tmp_path.glob("?.html")]
    assert len(files) == 2 + len(loads)
    for text in [printed.out, printed.err, *(each.read_text() for each in files)]:
        assert shown(text) == []
