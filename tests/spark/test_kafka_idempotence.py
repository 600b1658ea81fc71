"""A load with the permission to write the topic, and with no other permission."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_cas.log.kafka.client.rights import on_topic
from spark_cas.programs.bulk_load import main
from tests.kafka.clients import committed_values, create_topic
from tests.kafka.secured import sasl, secured_broker

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


def test_what_is_requested_is_appended_and_told_with_the_right_to_write_alone(spark, conf, capsys, tmp_path):
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
        assert (code, report["status"]) == (1, "failed")
        assert "lacks an ACL" in told
        assert sorted(committed_values(secured.open, topic), key=int) == [f"{at}" for at in range(20)]
