"""A Spark job reads the log of the store like any other log, while the store runs."""

import pytest

from spark_cas.log.open import open_log
from spark_cas.spark.reading.bootstrap import bootstrap
from tests.kv.nodes import SHARDS, keys_of, node

KEPT, DELETED = keys_of(0, 2)
THERE = keys_of(1, 1)[0]

pytestmark = [pytest.mark.spark, pytest.mark.full]


def test_the_state_that_spark_computes_is_the_store(spark, tmp_path):
    address = str(tmp_path / "log")
    with open_log(address) as log:
        log.create(SHARDS)
    with node(address, tmp_path) as a:
        a.put(KEPT, b"0")
        a.put(DELETED, b"1")
        a.delete(DELETED)
        versions = a.transact({KEPT: b"1", THERE: b"2"})
        state = bootstrap(spark, address).state.collect()
    found = {bytes(row["key"]): (bytes(row["value"]), row["partition"], row["offset"]) for row in state}
    assert found == {KEPT: (b"1", 0, versions[KEPT]), THERE: (b"2", 1, versions[THERE])}
