"""The state of a topic that its broker has compacted is the same as without compaction."""

import json
import time

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from jobs.bootstrap_state import main
from spark_cas import append_once, bootstrap, open_log, raise_for_outcome
from spark_cas.core.records import RECORDS
from spark_cas.programs.saved_state import place_of
from tests.kafka import clients
from tests.support.writing import records_in

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

SECONDS = 90
AGE_SECONDS = 0.2
SOON = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.0", "min_compaction_lag_ms": "0"}
"""The next append closes a segment that is older than `segment_ms`. The broker compacts the segment then."""


class Compacted:
    """A topic with one partition, and the last value of each key."""

    def __init__(self, log, address):
        self._log = log
        self._producer = Producer({"bootstrap.servers": address})
        self.truth = {}

    def append(self, **values):
        """Append a record for each key; None deletes the key."""
        rows = [
            {"key": key.encode(), "value": None if value is None else value.encode()} for key, value in values.items()
        ]
        end = self._log.bounds(0).end_offset
        records = pa.Table.from_pylist(rows, RECORDS)
        raise_for_outcome(append_once(self._log, 0, records, job=f"{self._log.topic}-{end}", expected_offset=end), 0)
        self.truth |= values

    def clean(self, *gone):
        """Wait until the broker has removed all but the newest record of each key, and the tombstones too."""
        deadline = time.monotonic() + SECONDS
        while any(self._versions(key) > (self.truth[key] is not None) for key in gone):
            assert time.monotonic() < deadline, "the broker does not compact"
            time.sleep(AGE_SECONDS)
            self._close_segment()

    def state(self):
        return sorted((key.encode(), value.encode()) for key, value in self.truth.items() if value is not None)

    def _close_segment(self):
        value = str(time.monotonic_ns())
        self._producer.produce(self._log.topic, value, "last", partition=0)
        assert self._producer.flush(clients.SECONDS) == 0
        self.truth["last"] = value

    def _versions(self, key):
        return sum(row["key"] == key.encode() for _, row in records_in(self._log, 0))


def rows_of(frame):
    return sorted((bytes(row.key), bytes(row.value)) for row in frame.collect())


def test_the_state_of_a_compacted_topic_and_its_refresh_are_the_truth(spark, broker, tmp_path, capsys):
    topic = clients.create_topic(broker.bootstrap, 1, cleanup_policy="compact", delete_retention_ms="100", **SOON)
    address = f"kafka://{broker.bootstrap}/{topic}"
    first, second = (str(tmp_path / name) for name in ("first", "second"))

    def save(*arguments):
        assert main(["--log", address, *arguments], "bootstrap_state.py", lambda _: spark) == 0
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    with open_log(address) as log:
        keyed = Compacted(log, broker.bootstrap)
        for version in "123":
            keyed.append(a=version, b=version, c=version, d=version)
        keyed.append(b=None, c=None, e="1")
        keyed.append(c="back")
        keyed.clean("a", "b", "c", "d")
        found = bootstrap(spark, address)
        assert rows_of(found.state) == keyed.state()
        assert json.loads(found.expected_offsets) == {"0": log.bounds(0).end_offset}
        assert found.records.count() < log.bounds(0).end_offset

        # From now on tombstones are kept long enough for a reader that has the deleted values.
        clients.configure(broker.bootstrap, topic, delete_retention_ms="600000")
        assert save("--output", first)["rows"] == len(keyed.state())
        keyed.append(a="4", d=None, f="1", g="1")
        keyed.append(a="5", f=None, c="6")
        keyed.clean("a", "c")
        save("--output", second, "--since", first)
        assert rows_of(place_of(spark, "parquet", second).load().state) == keyed.state()
        assert rows_of(bootstrap(spark, address).state) == keyed.state()
