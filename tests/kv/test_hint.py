from collections import Counter

from key_value_store.hint import preferred_node

NODES = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]


def test_each_node_is_to_begin_with_about_as_many_shards():
    counts = Counter(preferred_node(shard, NODES) for shard in range(600))
    assert all(150 <= counts[node] <= 250 for node in NODES)


def test_a_node_less_moves_its_own_shards_alone():
    before = {shard: preferred_node(shard, NODES) for shard in range(100)}
    after = {shard: preferred_node(shard, NODES[1:]) for shard in range(100)}
    assert {shard for shard in before if before[shard] != after[shard]} == {
        shard for shard in before if before[shard] == NODES[0]
    }
