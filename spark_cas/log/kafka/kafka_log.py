"""The Kafka log: the protocol of `spark_cas.log.protocol` over a topic on stock brokers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock

import numpy as np
import pyarrow as pa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from spark_cas.core.check_name import check_name
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import LogNotFoundError, LogNotSharedError, OptionError, TrimmedError
from spark_cas.core.expansion import Expansion, Intent, Layouts
from spark_cas.core.finding import Finding, OpenTransaction
from spark_cas.core.group import ABORTED, job_of, outcome_from_json
from spark_cas.core.guarantee import REQUIRED
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Outcome, Refusal
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Partitioner, Placement
from spark_cas.core.plan import Layout, Plan, Progress
from spark_cas.core.recorded_fields import to_json
from spark_cas.core.records import RECORDS
from spark_cas.log import timing
from spark_cas.log.backend import Backend, Preflight
from spark_cas.log.deadline import Wait, within
from spark_cas.log.kafka.accelerators import connections, librdkafka
from spark_cas.log.kafka.append.at_least_once import BlindAppends
from spark_cas.log.kafka.append.atomic_append import GroupWriter
from spark_cas.log.kafka.append.fence import Fence, ProducerPool
from spark_cas.log.kafka.append.writer import PartitionWriter
from spark_cas.log.kafka.broker_preflight import keys_elsewhere, limits_of_new_topic, preflight, with_record_limit
from spark_cas.log.kafka.client.client_errors import Right, on_topic
from spark_cas.log.kafka.client.clients import fence
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.offsets import end_offsets
from spark_cas.log.kafka.offsets.reading import first_offset_since, read_records, read_with_gaps
from spark_cas.log.kafka.registry.group_metadata import KafkaLockTable, Ledger
from spark_cas.log.kafka.registry.kafka_registry import KafkaRegistry
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.log.kafka.topic.open_transactions import (
    open_transactions,
    require_available_coordinators,
    write_abort_marker,
)
from spark_cas.log.kafka.topic.topic_settings import recent_ledger_kept_ms, topic_settings
from spark_cas.log.kafka.topic.topics import add_partitions, create_topic
from spark_cas.log.kafka.topic.weak_settings import cluster_findings
from spark_cas.log.protocol import EntryKind

_MOST_WRITERS = 1000
"""How many writers to keep. A later append of another claim reads the ledger, as in a process without that claim."""


class KafkaLog(KafkaRegistry, Backend):
    """A topic as a log. Open one in each process. Within a process, its claims and appends run one at a time.

    With ``pooled`` it uses the clients of the previous log in this process, and leaves them open for the next one.

    The layout epoch of a topic is its partition count, which never decreases: see `registry.layouts`.
    """

    group_in_process = True
    ledger_at_once = True
    removes_by_itself = True

    def __init__(self, spec: KafkaSpec, *, pooled: bool = False) -> None:
        self.topic = check_name(spec.topic, "the topic")
        self.spec = spec
        self.patience_seconds = spec.patience_seconds
        self._timeout = spec.open_transaction_seconds
        self._pooled = pooled
        super().__init__(ClientSet.borrow(spec) if pooled else ClientSet(spec))
        self._admin, self._readers = self._clients.admin, self._clients.readers
        self._writers: dict[tuple[int, str], PartitionWriter] = {}
        """The last used writers of this process, one for each partition and job. The newest is last."""
        self._whole: dict[str, GroupWriter] = {}
        """The commit groups that this process appends to, by name."""
        self._layouts = TopicLayouts(self._admin, self._registry, self.topic)
        self._producers = ProducerPool(self._clients)
        self._blind = BlindAppends(spec, self._clients, self._layouts)
        self._lock_table = KafkaLockTable(self._clients.members)
        self._turn = Lock()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for whole in self._whole.values():
            whole.close()
        self._whole.clear()
        self._producers.close()
        self._writers.clear()
        self._blind.close()
        if self._pooled and kind is None:
            self._clients.release()
        else:
            self._clients.close()

    def layout(self) -> Layout:
        return self._identified(self._layouts.layout())

    def layout_now(self) -> Layout:
        return self._identified(self._layouts.layout(made=False))

    def has_id(self, log_id: str) -> bool:
        message = self._admin.cached_topic(self.topic)
        if message is None or message[0] != log_id:
            return super().has_id(log_id)
        self._readers.identify(self.topic, log_id)
        return True

    def preflight(
        self, *, begun: bool = False, idempotence: str = REQUIRED, placement: Placement | None = None
    ) -> Preflight:
        def read() -> Preflight:
            return preflight(self._clients, self.spec, begun=begun, idempotence=idempotence)

        if not begun:
            result = read()
            elsewhere = "" if placement is None else keys_elsewhere(self._clients, self._layouts, placement)
            return (
                replace(result, notes=(*result.notes, elsewhere), keys_elsewhere=elsewhere) if elsewhere else result
            )
        result = self._clients.cached(f"preflight of {self.topic}, {idempotence}", read)
        # The limit may have been raised since, as the error for a row that is too large advises.
        return with_record_limit(result, self.spec, topic_settings(self._admin, self.topic))

    def limits_when_created(self) -> Preflight:
        return limits_of_new_topic(self._admin, self.spec)

    def tombstones_kept_ms(self) -> int | None:
        settings = topic_settings(self._admin, self.topic)
        if settings is None:
            return 0
        return settings.delete_retention_ms if settings.compacted else None

    def findings(self) -> tuple[Finding, ...]:
        return tuple(cluster_findings(self._admin, self.spec))

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        return open_transactions(self._admin, self.spec)

    def abort_transaction(
        self, transaction: OpenTransaction, partition: int | None = None, watched_ms: int = 0
    ) -> None:
        if transaction.orphaned:
            needed_ms = transaction.watch_ms()
            if partition is None or watched_ms < needed_ms:
                raise OptionError(
                    f"no coordinator lists the transaction of producer {transaction.producer_id}, but it was seen "
                    f"for less than {needed_ms // 1000} s. Its coordinator may still end it. Nothing was changed."
                )
            require_available_coordinators(self._admin)
        if partition is not None and not any(
            each.is_same(transaction, self.topic, partition) for each in self.open_transactions()
        ):
            raise OptionError(
                f"the transaction of producer {transaction.producer_id} changed meanwhile. Nothing was changed. Run "
                f"spark-cas doctor, and check whether its producer still runs."
            )
        if transaction.orphaned and partition is not None:
            write_abort_marker(self.spec, transaction, partition)
        else:
            fence(self.spec, [transaction.transactional_id])

    def ledger_kept_ms(self) -> int | None:
        return recent_ledger_kept_ms(self._clients)

    def commit_to_group(self, group: str, offsets: Mapping[int, int], seconds: float) -> None:
        ats = [TopicPartition(self.topic, partition, offset) for partition, offset in sorted(offsets.items())]

        def question() -> None:
            self._clients.members.commit(group, ats, seconds)

        rights = Right("Read", "group", group), on_topic("Read", self.topic)
        with within(seconds):
            self._admin.ask(question, f"committing offsets to group {group}", *rights)

    def accelerators(self) -> Mapping[str, bool]:
        return {"array_producer": librdkafka.library() is not None, "connections": connections.can_follow()}

    def create(self, partitions: int, partitioner: Partitioner = DEFAULT_PARTITIONER) -> Layout:  # noqa: ARG002
        topic = NewTopic(self.topic, partitions, -1)
        create_topic(self._admin, topic, f"creating topic {self.topic}")
        return self._await_layout()

    def record_partitioner(self, partitioner: Partitioner) -> Partitioner:
        return self._layouts.record_partitioner(partitioner)

    def bounds_of(
        self, partitions: Sequence[int], *, waiting: bool, at_least: Sequence[int] = ()
    ) -> tuple[Bounds, ...]:
        def read() -> tuple[Bounds, ...]:
            if not waiting:
                return end_offsets.all_stable_bounds(self._admin, ats)
            log_id = self._layouts.await_partitions(partitions, recent=True).log_id
            return end_offsets.at_one_moment(
                self._admin,
                ats,
                lambda: self.jobs_as_a_whole(log_id),
                lambda job: Ledger(self._clients.members, job).read_all(ats, log_id, self._timeout),
                self._timeout,
            )

        if not partitions:
            return ()
        ats = [self._at(each) for each in partitions]
        return end_offsets.reaching(self._admin, self.topic, at_least, read, timing.current().metadata_lag)

    def offset_since(self, partition: int, timestamp_ms: int) -> int | None:
        at = self._at(partition)
        wait = Wait(self.patience_seconds, f"looking up a time in partition {partition} of topic {self.topic}")
        while True:
            try:
                return self._offset_since(at, timestamp_ms)
            except TrimmedError:
                if not wait.again("records were removed during the lookup"):
                    raise

    def dated_since(self, partition: int, timestamp_ms: int) -> tuple[int, int] | None:
        return end_offsets.dated_since(self._admin, self._at(partition), timestamp_ms)

    def claim(self, partition: int, plan: Plan) -> Claim | Refusal:
        with self._turn, within(self.patience_seconds, extensible=True):
            try:
                writer = self._own(plan) if plan.group else self._new_writer(plan, partition)
                result = writer.claim(partition, plan)
            except LogNotFoundError:
                raise LogNotSharedError(
                    f"topic {self.topic}, which the plan was made for, is not there. Nothing was appended. Check "
                    f"that all workers reach the same brokers as the driver."
                ) from None
            if isinstance(result, Claim) and isinstance(writer, PartitionWriter):
                self._keep(writer, partition, plan)
            return result

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        with self._turn:
            if claim.plan.group:
                return self._own(claim.plan).append(claim, chunk)
            writer = self._writers.get((claim.partition, claim.plan.job))
            if writer is None:
                writer = self._new_writer(claim.plan, claim.partition)
                writer.known[claim.partition] = claim.progress
            self._keep(writer, claim.partition, claim.plan)
            return writer.append(claim, chunk)

    def append_blind(self, partition: int, layout: Layout, chunk: Chunk, guarantee: str) -> Outcome:
        layout.require(partition)
        with self._turn:
            return self._blind.append(self._at(partition), layout, chunk, guarantee)

    def read(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...] = tuple(RECORDS.names)
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if not self._layouts.knows(partition):
            # Only for unknown ones: the count never decreases, and describing many partitions takes long.
            self._layouts.await_partitions([partition])
        end_offsets.require_kept(self._admin, self._at(partition), offsets)
        return read_records(self._readers, self._at(partition), offsets, columns)

    def read_with_gaps(
        self, partition: int, offsets: OffsetRange, columns: tuple[str, ...]
    ) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        at = self._at(partition)
        return read_with_gaps(
            self._readers, at, offsets, columns, lambda: end_offsets.require_kept(self._admin, at, offsets)
        )

    def progress_of(
        self, partitions: Sequence[int], job: str, group: str = "", *, proven: bool = False
    ) -> tuple[Progress | None, ...]:
        if not partitions:
            return ()
        layout = self._layouts.await_partitions(partitions, recent=not proven)
        ats = [self._at(each) for each in partitions]
        result = Ledger(self._clients.members, job).read_all(ats, layout.log_id, self._timeout, proven=proven)
        own = self._whole.get(group)
        if own is None:
            return result
        return tuple(own.progress(each) or entry for each, entry in zip(partitions, result, strict=True))

    def entry(self, kind: EntryKind, job: str) -> str | None:
        """Return an entry. The ledger records that a group was committed, the registry that it was aborted."""
        if kind == "outcome":
            plan = self.plan(job_of(job))
            result = None if plan is None else self._whole_of(replace(plan, group=job)).outcome()
            if result is not None:
                return to_json(result)
        return super().entry(kind, job)

    def put_entry(self, kind: EntryKind, job: str, text: str) -> str:
        if kind != "outcome":
            return super().put_entry(kind, job, text)
        plan = self.plan(job_of(job))
        if plan is None:
            return to_json(ABORTED)
        wanted = outcome_from_json(text, job)
        with self._turn:
            whole = self._whole.pop(job, None) or self._whole_of(replace(plan, group=job))
            try:
                held = None if wanted.committed else whole.outcome()
                if held is not None:
                    return to_json(held)  # do not fence a writer that is active by now
                if not wanted.committed:
                    # Record the abort before fencing its writer: a writer that claims later finds it.
                    super().put_entry(kind, job, text)
                return to_json(whole.decide(wanted))
            finally:
                whole.close()

    def trim(self, partition: int, before_offset: int, *, dry_run: bool = False) -> Bounds:
        bounds = self.bounds(partition)
        if before_offset <= bounds.start_offset:
            return bounds
        bounds.require(OffsetRange(before_offset, before_offset))
        if dry_run:
            return Bounds(before_offset, bounds.end_offset)
        at = TopicPartition(self.topic, partition, before_offset)

        def question() -> None:
            requested = self._admin.client.delete_records([at], request_timeout=self._admin.request_seconds)
            self._admin.answer(next(iter(requested.values())))

        self._admin.ask(question, "trimming", on_topic("Delete", self.topic))
        return self.bounds(partition)

    def layouts(self, known_epoch: int | None = None) -> Layouts:
        return self._layouts.all(known_epoch)

    def check_partitions_may_be_added(self, partitions: int) -> None:
        add_partitions(self._admin, self.topic, partitions, only_try=True)

    def begin_expansion(self, layout: Layout, partitions: int) -> Intent:
        return self._layouts.begin(layout, partitions)

    def end_partition(self, partition: int, intent: Intent) -> int:  # noqa: ARG002
        # All ids that an earlier claim may use are known: a plan is recorded before its first claim, and the intent
        # before this call. Later claims read the intent.
        log_id = self.layout().log_id
        if partition == 0:
            self._registry.prove_jobs()
            whole = self.jobs_as_a_whole(log_id)
            fence(self.spec, [self.spec.id_of_atomic_load(job) for job in sorted(whole) if not whole[job]])
        jobs = self.jobs_with_own_id(log_id, partition)
        fence(self.spec, [self.spec.id_of_partition(partition, job) for job in jobs])
        # This also fences the writers that claim the partition, because they hold this id.
        own_id = self.spec.id_of_partition(partition, None)
        return end_offsets.proven_bounds(self._admin, self.spec, self._at(partition), own_id).end_offset

    def add_partitions(self, intent: Intent) -> None:
        add_partitions(self._admin, self.topic, intent.partitions)
        self._await_layout(intent.partitions)

    def finish_expansion(self, expansion: Expansion) -> None:
        self._layouts.finish(self.layout().log_id, expansion)

    def load_locks(self) -> LoadLocks:
        return self._lock_table.load_locks()

    def put_load_locks(self, load_locks: LoadLocks) -> bool:
        return self._lock_table.put_load_locks(load_locks)

    def _offset_since(self, at: TopicPartition, timestamp_ms: int) -> int | None:
        """Read from the broker's offset, which may hold no committed record, up to the first record that matches."""
        first, bounds = end_offsets.lookup_time(self._admin, at, timestamp_ms)
        if first is None:
            if timestamp_ms > end_offsets.newest_ms(self._admin, at):
                return None
            # A record may have been appended between the two requests.
            first, bounds = end_offsets.lookup_time(self._admin, at, timestamp_ms)
        if first is None:
            # Brokers (4.1) also find none if DeleteRecords removed the first match of a segment.
            first = bounds.start_offset
        if first >= bounds.end_offset:
            return None
        return first_offset_since(self._readers, at, OffsetRange(first, bounds.end_offset), timestamp_ms)

    def _identified(self, layout: Layout) -> Layout:
        self._readers.identify(self.topic, layout.log_id)
        return layout

    def _keep(self, writer: PartitionWriter, partition: int, plan: Plan) -> None:
        self._writers.pop((partition, plan.job), None)
        self._writers[partition, plan.job] = writer
        if len(self._writers) > _MOST_WRITERS:
            del self._writers[next(iter(self._writers))]

    def _own(self, plan: Plan) -> GroupWriter:
        """Return the commit group of a plan, which this process appends to."""
        if plan.group not in self._whole:
            self._whole[plan.group] = self._whole_of(plan)
        return self._whole[plan.group]

    def _whole_of(self, plan: Plan) -> GroupWriter:
        def is_aborted(group: str) -> bool:
            return KafkaRegistry.entry(self, "outcome", group) is not None

        return GroupWriter(self._clients, self._layouts, plan, is_aborted=is_aborted)

    def _new_writer(self, plan: Plan, partition: int) -> PartitionWriter:
        at = self._at(partition)
        transactional_id = self.spec.id_of_partition(partition, None if plan.claims(partition) else plan.job)
        fence = Fence(self._producers, at, transactional_id)
        return PartitionWriter(self._clients, self._layouts, plan, fence)

    def _await_layout(self, partitions: int = 1) -> Layout:
        """Wait until the brokers know a new topic and each of its partitions."""
        wait = Wait(self.patience_seconds, f"waiting for topic {self.topic}")
        while True:
            try:
                layout = self.layout_now()
                for partition in range(max(partitions, layout.partitions)):
                    end_offsets.high_watermark(self._admin, self._at(partition))
            except LogNotFoundError:
                if not wait.again("not all brokers know it yet"):
                    raise
            else:
                return layout

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)
