"""How far a consumer has fetched a partition, including records that it does not deliver.

`Consumer.position` moves only when the client delivers a record, or passes the marker that ends a transaction. Inside
one large aborted transaction it does not move at all. The client's statistics report the next offset to fetch, which
moves with each response that holds records of the partition.
"""

import json


class FetchPosition:
    """The largest offset up to which one consumer has fetched a partition."""

    def __init__(self, topic: str, partition: int, start_offset: int) -> None:
        self._topic = topic
        self._partition = str(partition)
        self._fetched = self._known = start_offset

    def take(self, statistics: str) -> None:
        """Read the client's statistics, which are a JSON object (librdkafka's STATISTICS.md)."""
        topic = json.loads(statistics)["topics"].get(self._topic)
        partition = None if topic is None else topic["partitions"].get(self._partition)
        if partition is not None:
            self._fetched = max(self._fetched, partition["next_offset"])

    def advanced(self) -> bool:
        """Whether the client has fetched more since the last call."""
        before, self._known = self._known, self._fetched
        return self._fetched > before
