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
from tests.kafka.clients import SECONDS, create_topic
from tests.kafka.secured import PASSWORD, USER, sasl, secured_broker
from tools.ports import held_ports

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
KEY = base64.b64encode(b"canary-account-key-0123456789").decode()
PEM = "-----BEGIN PRIVATE KEY----- canary-ssl-key -----END PRIVATE KEY-----"
CANARIES = [PASSWORD, KEY, "canary-ssl-key", "canary-sas", "canary-key-password"]


def rights(topic):
    """Return all rights of a write. The user may also create the topics of the registry."""
    topics = [
        Right(each, "topic", f"{topic}", prefixed=True) for each in ("Read", "Write", "Create", "DescribeConfigs")
    ]
    group = Right("Read", "group", topic, prefixed=True)
    return [*topics, group, Right("Write", "transactional-id", topic, prefixed=True)]


@pytest.fixture(scope="module")
def application(conf, tmp_path_factory):
    """Run the application with the settings of `conf`, and return its output, event log and broker's topics."""
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
            "retryTimeout": "5s",
        }
        azure = {
            "path": "az://container/log",
            "store.azure_storage_account_name": "account",
            "store.azure_storage_account_key": KEY,
            "store.azure_storage_endpoint": f"http://127.0.0.1:{closed}",
            "store.allow_http": "true",
            "retryTimeout": "5s",
        }
        sas = azure | {"store.azure_storage_sas_key": "sv=1&sig=canary-sas"}
        command = [sys.executable, str(Path(__file__).with_name("canary_driver.py"))]
        ended = subprocess.run(
            [*command, json.dumps(options), json.dumps([ssl, azure, sas]), str(folder / "events")],
            cwd=folder,
            env=os.environ | {"SPARK_CONF_DIR": str(ROOT / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.stdout.endswith("done\n"), ended.stdout + ended.stderr
        yield ended.stdout + ended.stderr, folder / "events", stored(secured.open)


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
    output, _, _ = application
    assert "conditional-log" in output
    assert shown(output) == []


def test_event_log_has_no_secret(application):
    _, events, _ = application
    text = "".join(each.read_text() for each in events.rglob("*") if each.is_file())
    assert "SparkListenerSQLExecutionStart" in text
    assert "kafka.bootstrap.servers" in text, "the options are in the event log"
    assert shown(text) == []


def test_ledger_and_registry_have_no_secret(application):
    *_, records = application
    assert b"/plan/load" in records
    assert b'"log_id"' in records
    assert shown(records.decode(errors="replace")) == []
    assert USER not in records.decode(errors="replace")
