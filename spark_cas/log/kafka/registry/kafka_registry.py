"""The registry of a prefix: plans and completions in one compacted topic, expansions in another.

Each claim of each task reads the expansions. They have a topic of their own, so that a claim's read does not grow
with the number of jobs. That topic also has the entries of cancelled runs, because tasks read them too; the driver
removes them.

A job's plan and completion are in one partition of the other topic, chosen by a hash of the job's name. The entry
`registry` records over how many partitions jobs are spread. The first writer to the prefix records it.
"""

import json
from collections.abc import Iterator
from zlib import crc32

from spark_cas.core.plan import MOST_PARTITIONS, Completion, Plan, input_entry
from spark_cas.core.recorded_fields import in_format, recorded
from spark_cas.log.kafka.client.clients import fence
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.registry.compacted_map import Entries, records_of, refreshed
from spark_cas.log.kafka.registry.group_metadata import Ledger
from spark_cas.log.kafka.topic.topic_settings import describe
from spark_cas.log.kafka.topic.topics import create_registry_topics
from spark_cas.log.protocol import EntryKind

_SETTLED = "registry"
_OF_CLAIMS = ("expansion", "layout", "partitioner", "cancelled")
"""The kinds of entries in the topic that claims read."""


class Registry:
    """The entries of both topics."""

    def __init__(self, clients: ClientSet) -> None:
        self._readers, self._admin = clients.readers, clients.admin
        self.spec = self._readers.spec
        self._layouts = Entries(self._readers, self._admin, self.spec.layouts_topic, 0)
        self._jobs: dict[int, Entries] = {}

    def exists(self) -> bool:
        """Return whether a writer has created both topics."""
        return self._count() is not None

    def of(self, key: str) -> Entries:
        """Return the current entries of the partition that stores a key."""
        return self._storing(key).refresh()

    def put(self, key: str, text: str) -> str:
        self._settle()
        return _put(self._storing(key), key, text)

    def all_jobs(self) -> list[Entries]:
        partitions = [self._partition(number) for number in range(self._count() or 1)]
        return refreshed(self._admin, partitions, self.spec.patience_seconds)

    def prove_jobs(self) -> None:
        """Read all job entries up to proven bounds. Raises StorageError."""
        for number in range(self._count() or 1):
            self._partition(number).prove()

    def _storing(self, key: str) -> Entries:
        topic, kind, job = key.split("/", 2)
        if kind in _OF_CLAIMS:
            return self._layouts
        return self._partition(crc32(f"{topic}/{job}".encode()) % (self._count() or 1))

    def _count(self) -> int | None:
        """Return over how many partitions jobs are spread. If that is None, there are no jobs."""
        count = self._settled() or self._settled(self._layouts.refresh())
        if count is not None:
            self._admin.known.add(self.spec.registry_topic)  # by the writer that recorded the count
        return count

    def _settled(self, layouts: Entries | None = None) -> int | None:
        text = (layouts or self._layouts).text(_SETTLED)
        with in_format(f"the entry {_SETTLED!r} of topic {self.spec.layouts_topic}"):
            return None if text is None else _partition_count(json.loads(text)["partitions"])

    def _settle(self) -> None:
        """Create both topics and record the partition count, unless it is recorded."""
        if self._count() is not None:
            return
        create_registry_topics(self._admin, self.spec)
        count = len(describe(self._admin, self.spec.registry_topic).partitions)
        _put(self._layouts, _SETTLED, json.dumps({"partitions": count}))

    def _partition(self, number: int) -> Entries:
        if number not in self._jobs:
            self._jobs[number] = Entries(self._readers, self._admin, self.spec.registry_topic, number)
        return self._jobs[number]


def _partition_count(value: object) -> int:
    if not isinstance(value, int) or not 0 < value <= MOST_PARTITIONS:
        raise ValueError(f"expected a number from 1 to {MOST_PARTITIONS}")
    return value


def _put(entries: Entries, key: str, text: str) -> str:
    entries.put(key, records_of(key, text))
    held = entries.text(key)
    return text if held is None else held


class KafkaRegistry:
    """`spark_cas.log.protocol.Registry` over the registry of a prefix.

    Entries have the topic's name in their keys and the topic's id in their values. So a job that is run again on
    another topic of the same name gets an error.
    """

    def __init__(self, clients: ClientSet) -> None:
        self._clients = clients
        self._spec = clients.readers.spec
        self._topic = self._spec.topic
        # Each read of the cached registry requests the end of its topic, and reads the new records.
        self._registry = clients.cached("registry", lambda: Registry(clients))

    def entry(self, kind: EntryKind, job: str) -> str | None:
        key = self._key(kind, job)
        return self._registry.of(key).text(key)

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        if kind == "cancelled" and not self._registry.exists():
            return text
        return self._registry.put(self._key(kind, job), text)

    def remove_cancelled(self, run: str) -> None:
        key = self._key("cancelled", run)
        if self._registry.exists():
            self._registry.of(key).remove([key])

    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted(job for job, _ in self._planned()))

    def forget(self, plan: Plan) -> None:
        job, text = plan.job, self.entry("completion", plan.job)
        done = None if text is None else recorded(Completion, text, job)
        own = [each for each in range(plan.partitions) if _may_hold_own_id(plan, done, each)]
        ids = [self._spec.id_of_partition(each, job) for each in own]
        fence(self._spec, [*ids, self._spec.id_of_atomic_load(job)] if plan.whole else ids)
        Ledger(self._clients.members, job).erase(self._clients.admin, self._topic, plan.partitions)
        if plan.input:
            key = self._key("input", input_entry(job, plan.input))
            self._registry.of(key).remove([key])
        keys = [self._key("plan", job), self._key("completion", job)]
        self._registry.of(keys[0]).remove(keys)

    def jobs_with_own_id(self, log_id: str, partition: int) -> list[str]:
        """Return the jobs that may still write a partition of this topic under a transactional id of their own.

        These are the jobs without a claim on the partition, except those whose completion records rows there. The
        writer that completed such a job took over the id. A job that was completed without rows there may have an
        earlier attempt with rows. Raises StorageError, FormatError.
        """
        result = []
        for job, entries in self._planned():
            plan = self._plan_in(entries, job)
            if plan is not None and plan.log_id == log_id and partition < plan.partitions:
                done = entries.text(self._key("completion", job))
                completion = None if done is None else recorded(Completion, done, job)
                if _may_hold_own_id(plan, completion, partition):
                    result.append(job)
        return sorted(result)

    def jobs_as_a_whole(self, log_id: str) -> dict[str, bool]:
        """Return the atomic loads on a topic of this id, each with whether it is complete.

        Raises StorageError, FormatError.
        """
        result = {}
        for job, entries in self._planned():
            plan = self._plan_in(entries, job)
            if plan and plan.whole and plan.log_id == log_id:
                result[job] = self._key("completion", job) in entries.held
        return result

    def _planned(self) -> Iterator[tuple[str, Entries]]:
        """Yield each job that has a plan, with the entries of its partition."""
        plans = self._key("plan", "")
        for entries in self._registry.all_jobs():
            for key in [each for each in entries.held if each.startswith(plans)]:
                yield key.removeprefix(plans), entries

    def _plan_in(self, entries: Entries, job: str) -> Plan | None:
        text = entries.text(self._key("plan", job))
        return None if text is None else recorded(Plan, text, job)

    def _key(self, kind: EntryKind, job: str) -> str:
        return f"{self._topic}/{kind}/{job}"


def _may_hold_own_id(plan: Plan, completion: Completion | None, partition: int) -> bool:
    """Return whether a writer of a job may write a partition under a transactional id with the job's name."""
    message = () if completion is None else completion.partitions
    return not plan.claims(partition) and all(each.progress.partition != partition for each in message)
