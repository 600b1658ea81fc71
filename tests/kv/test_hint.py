from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core.partitioner import partition_of
from spark_cas.kv.hint import preferred_node, shard_of

NODES = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_key_lies_where_kafka_and_route_place_it(key, shards):
    column = pa.record_batch({"key": pa.array([key], pa.binary())})
    assert shard_of(key, shards) == partition_of(column, shards)[0].as_py()


def test_each_node_is_to_begin_with_about_as_many_shards():
    counts = Counter(preferred_node(shard, NODES) for shard in range(600))
    assert all(150 <= counts[node] <= 250 for node in NODES)


def test_a_node_less_moves_its_own_shards_alone():
    before = {shard: preferred_node(shard, NODES) for shard in range(100)}
    after = {shard: preferred_node(shard, NODES[1:]) for shard in range(100)}
    assert {shard for shard in before if before[shard] != after[shard]} == {
        shard for shard in before if before[shard] == NODES[0]
    }
