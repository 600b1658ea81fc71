"""The registry: one compacted topic for plans and completions, appended to by drivers under the log's own rule.

The first record of a key holds for ever: a writer becomes the topic's only writer, reads all of it, and appends only
when the key is not there and its record lands at the very end it has read up to.
"""

import random
import time

import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.errors import FormatError, LogNotFoundError, StorageError
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.plan import Completion, Plan, completion_from_json, plan_from_json, to_json
from spark_cas.core.records import RECORDS
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.clients import TransactionalProducer
from spark_cas.log.kafka.codes import Meaning, meaning_of
from spark_cas.log.kafka.plain import plain_error
from spark_cas.log.kafka.reading import read_records
from spark_cas.log.kafka.registry_topic import create_registry_topic
from spark_cas.log.kafka.rights import on_topic, to_claim
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.transaction import produce

_DEADLINE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_JITTER = random.SystemRandom()


class Registry:
    """Entries of which the first of each key holds."""

    def __init__(self, spec: KafkaSpec, admin: Admin) -> None:
        self._spec = spec
        self._admin = admin
        self._at = TopicPartition(spec.registry_topic, 0)
        self._entries: dict[str, str] = {}
        self._read_to = 0

    @property
    def topic(self) -> str:
        """The topic that holds them."""
        return self._at.topic

    def get(self, key: str) -> str | None:
        """The value of an entry, None when it has none."""
        return self._refresh().get(key)

    def below(self, prefix: str) -> dict[str, str]:
        """All entries whose keys begin so, by the rest of the key."""
        entries = self._refresh().items()
        return {key.removeprefix(prefix): value for key, value in entries if key.startswith(prefix)}

    def put(self, key: str, value: str) -> str:
        """Record an entry unless there is one; returns the one that holds."""
        create_registry_topic(self._admin, self._at.topic)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            try:
                held = self._try_put(key, value)
            except KafkaException as error:
                if meaning_of(error.args[0].code()) is Meaning.REFUSED:
                    name = self._at.topic
                    rights = (on_topic("Write", name), *to_claim(self._spec))
                    raise plain_error(error, f"writing to the registry topic {name}", *rights) from None
                held = None
            if held is not None:
                return held
            time.sleep(_PAUSE_SECONDS * _JITTER.uniform(0.5, 1.5))
        raise StorageError(
            f"the registry topic {self._at.topic} did not take an entry within {_DEADLINE_SECONDS:.0f} s. Check that "
            f"the brokers are well, then run the same job again."
        )

    def _try_put(self, key: str, value: str) -> str | None:
        """One try; None when another driver came in between."""
        producer = TransactionalProducer(self._spec, f"{self._spec.prefix}/{self._at.topic}/{self._at.partition}")
        try:
            producer.init(self._spec.request_seconds)
            held = self._refresh().get(key)
            if held is not None:
                return held
            end = self._read_to
            producer.begin()
            delivered = produce(producer, self._at, _record(key, value), self._spec.request_seconds)
            if delivered is None or delivered.range() != OffsetRange(end, end + 1):
                producer.abort()
                return None
            producer.commit()
        finally:
            producer.close()
        return self._refresh().get(key)

    def _refresh(self) -> dict[str, str]:
        """All entries as of now: an entry once read holds for ever, so only what came since is read."""
        try:
            bounds = ends.barrier(self._admin, self._at, self._spec.request_seconds)
        except LogNotFoundError:
            return self._entries
        new = OffsetRange(max(self._read_to, bounds.start_offset), bounds.end_offset)
        for _, records in read_records(self._spec, self._at, new, ("key", "value")):
            for key, value in zip(records.column("key"), records.column("value"), strict=True):
                self._entries.setdefault(key.as_py().decode(), value.as_py().decode())
        self._read_to = bounds.end_offset
        return self._entries


class KafkaRegistry:
    """`spark_cas.log.protocol.Registry` over the registry topic.

    Entries go by the topic's name, and each names the id of the topic it was made for: so a job that is run again
    on another topic of the same name is told so.
    """

    def __init__(self, spec: KafkaSpec, admin: Admin) -> None:
        self._topic = spec.topic
        self._registry = Registry(spec, admin)

    def record_plan(self, plan: Plan) -> Plan:
        return _plan(self._registry.put(self._key("plan", plan.job), to_json(plan)), plan.job)

    def plan(self, job: str) -> Plan | None:
        value = self._registry.get(self._key("plan", job))
        return None if value is None else _plan(value, job)

    def record_completion(self, completion: Completion) -> Completion:
        value = self._registry.put(self._key("completion", completion.job), to_json(completion))
        return _completion(value, completion.job)

    def completion(self, job: str) -> Completion | None:
        value = self._registry.get(self._key("completion", job))
        return None if value is None else _completion(value, job)

    def jobs(self) -> tuple[str, ...]:
        return tuple(sorted(self._registry.below(self._key("plan", ""))))

    def jobs_with_own_id(self, log_id: str, partition: int) -> list[str]:
        """The jobs on a topic of this id that may still write a partition under an id with their name in it.

        These are the jobs without a claim on the partition, but for those whose completion tells of rows there: who
        completed them took the id over. One that was completed without may have been begun with rows for it.

        Raises StorageError, FormatError.
        """
        plans = self._registry.below(self._key("plan", ""))
        complete = self._registry.below(self._key("completion", ""))
        return [
            job
            for job, value in plans.items()
            if _has_own_id(_plan(value, job), log_id, partition)
            and not (job in complete and _tells_of(_completion(complete[job], job), partition))
        ]

    def _key(self, kind: str, job: str) -> str:
        return f"{self._topic}/{kind}/{job}"


def _has_own_id(plan: Plan, log_id: str, partition: int) -> bool:
    return plan.log_id == log_id and partition < plan.partitions and not plan.claims(partition)


def _tells_of(completion: Completion, partition: int) -> bool:
    return any(result.progress.partition == partition for result in completion.partitions)


def _plan(value: str, job: str) -> Plan:
    try:
        return plan_from_json(value)
    except (KeyError, TypeError, ValueError):
        raise _foreign(f"the plan of job {job!r}") from None


def _completion(value: str, job: str) -> Completion:
    try:
        return completion_from_json(value)
    except (KeyError, TypeError, ValueError):
        raise _foreign(f"the completion of job {job!r}") from None


def _foreign(what: str) -> FormatError:
    return FormatError(
        f"{what} in the registry topic is not what this spark_cas writes. Was it written by a newer version, or does "
        f"another program write to the topic?"
    )


def _record(key: str, value: str) -> pa.Table:
    now = time.time_ns() // 1_000_000
    return pa.table([[key.encode()], [value.encode()], [None], [now]], schema=RECORDS)
