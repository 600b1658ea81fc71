"""Loads without the permissions, or on brokers without the internal topics, that exactly once needs."""

import json
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas import LogSettingsWarning
from spark_cas.log.kafka.client.client_errors import on_topic
from spark_cas.programs.bulk_load import main
from tests.kafka.clients import committed_values, create_topic
from tests.kafka.secured import sasl, secured_broker
from tests.kafka.test_coordinators import SETTINGS
from tools.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


def test_requested_guarantee_is_reported_with_only_write_access(spark, conf, capsys, tmp_path):
    pq.write_table(pa.table({"k": [f"{at}" for at in range(20)]}), tmp_path / "rows.parquet")
    folder = tmp_path / "secured"
    folder.mkdir()
    with secured_broker(conf, folder) as secured:
        topic = create_topic(secured.open)
        secured.allow([on_topic("Write", topic)])
        settings = [f"--log-option=kafka.{name}={value}" for name, value in sasl().items()]
        command = [
            *("--input", str(tmp_path / "rows.parquet"), "--key", "k", "--value", "k"),
            *("--bootstrap-servers", secured.sasl, "--topic", topic, f"--log-option=idPrefix={topic}", *settings),
            *("--log-option=idempotence=requested",),
        ]

        def load(*more: str):
            code = main([*command, *more], "bulk_load.py", lambda _: spark)
            out, told = capsys.readouterr()
            return code, json.loads(out.splitlines()[-1]), told

        code, report, told = load()
        assert (code, report["error"]) == (2, "OPTION")
        assert "expectedOffsets=end, given or by default, is a condition" in told
        code, report, told = load("--expected-offsets", "none")
        assert (code, report["rows"], report["job"]) == (0, 20, None), told
        assert [each["guarantee"] for each in report["partitions"]] == ["idempotent"]
        assert "exactly once is not available here" in told
        code, report, told = load("--expected-offsets", "none", "--job", "load-1")
        assert (code, report["status"]) == (7, "access_denied")
        assert "lacks an ACL" in told
        assert sorted(committed_values(secured.open, topic), key=int) == [f"{at}" for at in range(20)]


@pytest.mark.full
@pytest.mark.parametrize("setting", SETTINGS.values())
def test_load_on_too_few_brokers_for_an_internal_topic(spark, conf, capsys, tmp_path, setting):
    """With ``requested`` it appends once and does not advise a rerun. With ``required`` it appends nothing."""
    pq.write_table(pa.table({"k": [f"{at}" for at in range(9)]}), tmp_path / "rows.parquet")
    with KafkaBroker(conf, settings={setting: "3"}) as broker:
        topic = create_topic(broker.bootstrap)
        command = [
            *("--input", str(tmp_path / "rows.parquet"), "--key", "k", "--value", "k", "--job", "load-1"),
            *("--bootstrap-servers", broker.bootstrap, "--topic", topic, "--expected-offsets", "none"),
        ]

        def load(idempotence: str):
            given = ["--log-option", f"idempotence={idempotence}"]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", LogSettingsWarning)
                code = main([*command, *given], "bulk_load.py", lambda _: spark)
            out, told = capsys.readouterr()
            notes = [str(each.message) for each in caught if each.category is LogSettingsWarning]
            return code, json.loads(out.splitlines()[-1]), told, notes

        code, report, told, _ = load("required")
        assert (code, report["error"], report["appended_rows"]) == (1, "STORAGE", 0), told
        assert f"Nothing was appended. Set {setting} to at most 1" in told
        assert told.rstrip().endswith("this run appended 0")
        assert committed_values(broker.bootstrap, topic) == []

        code, report, told, notes = load("requested")
        assert (code, report["rows"], report["appended_rows"]) == (0, 9, 9), told
        assert len(committed_values(broker.bootstrap, topic)) == 9
        for text in (told, *notes):
            assert "othing was appended" not in text
            assert "run the same job again" not in text
        assert f"For exactly once, set {setting} to at most 1" in told
