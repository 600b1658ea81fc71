"""After expansions the state holds the last value of each key, whichever partition it was written to."""

import pyarrow as pa
import pytest

from spark_cas import RECORDS, append_once, bootstrap, open_log, raise_for_outcome, route
from spark_cas.core.partitioner import partition_of
from spark_cas.log.expanding import expand_log
from spark_cas.programs.saved_state import save_state
from tests.spark.addresses import ON_KAFKA

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def write(log, pairs):
    """Append each key's value, None for a tombstone, to the key's partition in the current layout."""
    records = pa.Table.from_pylist([{"key": key, "value": value} for key, value in pairs.items()], RECORDS)
    layout = log.layout()
    places = pa.array(partition_of(records.combine_chunks().to_batches()[0], layout.partitions)).to_pylist()
    for partition in sorted(set(places)):
        part = records.filter(pa.array([place == partition for place in places]))
        end = log.bounds(partition).end_offset
        job = f"{log.topic}-{layout.epoch}-{partition}-{end}"
        raise_for_outcome(append_once(log, partition, part, job=job, expected_offset=end), partition)


def values_of(state):
    rows = [(bytes(row.key), bytes(row.value)) for row in state.collect()]
    assert len(rows) == len(dict(rows)), "a key has one row"
    return dict(rows)


KEYS = [f"N{number}".encode() for number in range(40)]


@pytest.mark.parametrize("address", ON_KAFKA, indirect=True)
def test_state_has_the_newest_values_through_expansions(spark, address, tmp_path):
    """The second expansion, from 4 to 5 partitions, also moves keys between existing partitions."""
    place = str(tmp_path / "state")
    with open_log(address) as log:
        write(log, dict.fromkeys(KEYS, b"1"))
        first = save_state(spark, {"path": address}, "parquet", f"{place}-0")
        expand_log(log, 4)
        write(log, dict.fromkeys(KEYS[:20], b"2") | dict.fromkeys(KEYS[5:10]))
        expected = dict.fromkeys(KEYS, b"1") | dict.fromkeys(KEYS[:20], b"2")
        expected = {key: value for key, value in expected.items() if key not in KEYS[5:10]}
        assert values_of(bootstrap(spark, address).state) == expected
        expand_log(log, 5)
        write(log, dict.fromkeys(KEYS[7:30:3], b"3") | {KEYS[39]: None})
        expected |= dict.fromkeys(KEYS[7:30:3], b"3")
        del expected[KEYS[39]]
        found = bootstrap(spark, address)
        assert values_of(found.state) == expected
        assert [len(row.thresholds) for row in found.offsets.orderBy("partition").collect()] == [2, 2, 1, 1, 0]
    # Refresh a state that was saved before both expansions.
    saved = save_state(spark, {"path": address}, "parquet", f"{place}-1", since=f"{place}-0")
    assert (first.rows, saved.rows) == (len(KEYS), len(expected))
    assert values_of(spark.read.parquet(f"{place}-1/{saved.name}")) == expected


def test_copy_keeps_the_order_of_each_key_through_expansions(spark, path, tmp_path):
    with open_log(path) as log:
        log.create(2)
        for number, partitions in enumerate((2, 2, 2, 4, 4, 8)):
            if partitions > log.layout().partitions:
                expand_log(log, partitions)
            write(log, dict.fromkeys(KEYS if number % 2 else KEYS[::2], b"%d" % number))
    copy = {"path": str(tmp_path / "copy"), "job": "copy", "partitions": "3"}
    records = spark.read.format("conditional-log").load(path)
    routed = route(records, copy)
    assert routed.columns == records.columns
    routed.write.format("conditional-log").mode("append").options(**copy).save()
    values: dict[bytes, list[bytes]] = {}
    for row in spark.read.format("conditional-log").load(copy["path"]).orderBy("partition", "offset").collect():
        values.setdefault(bytes(row.key), []).append(bytes(row.value))
    assert values == {
        key: [b"0", b"1", b"2", b"3", b"4", b"5"][number % 2 :: 1 + number % 2] for number, key in enumerate(KEYS)
    }
