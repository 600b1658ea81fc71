"""The settings of conf/kafka for brokers and topics: on real brokers, `spark-cas doctor` finds no weak setting."""

import re
from pathlib import Path

import pytest

from spark_cas.log.kafka import KafkaLog
from tests.kafka.open_transactions import place_on
from tests.support.loads import TEN, run_job
from tools.kafka_broker import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]


def settings_in(name):
    lines = (ROOT / "conf/kafka" / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.full
def test_doctor_finds_nothing_on_a_cluster_with_these_settings(conf):
    broker, topic = settings_in("broker.properties"), settings_in("topic.properties")
    with KafkaCluster(conf, 3, settings=broker) as cluster:
        place = place_on(cluster.bootstrap, **{name.replace(".", "_"): value for name, value in topic.items()})
        with KafkaLog(place.spec) as log:
            run_job(log, "load", TEN)
        report = place.report()
    assert (report.code, report.problems) == (0, {})


def test_the_files_have_each_setting_that_the_page_lists():
    table = (ROOT / "docs/kafka.md").read_text().partition("## Recommended settings")[2].partition("## ")[0]
    listed = {
        name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    files = {*settings_in("broker.properties"), *settings_in("topic.properties")}
    defaults = {"replication.factor", "offset.metadata.max.bytes"}
    assert listed - defaults <= files
