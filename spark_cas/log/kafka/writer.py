"""The writer of one partition for one job: its claim, its appends, and what it does when a reply is lost."""

import random
import time
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.errors import ConditionalLogError, StorageError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, Outcome, Refusal, Truncated, Unknown, check_expected
from spark_cas.core.plan import Plan, Progress
from spark_cas.core.records import fill_timestamps
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.admin import Admin
from spark_cas.log.kafka.clients import TransactionalProducer
from spark_cas.log.kafka.codes import PURGED, Meaning, meaning_of, reason_of
from spark_cas.log.kafka.ledger import Ledgers, UndecidedError
from spark_cas.log.kafka.plain import plain_error
from spark_cas.log.kafka.reading import first_record
from spark_cas.log.kafka.rights import to_append
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import require_planned, topic_settings
from spark_cas.log.kafka.transaction import Delivered, produce, refuse_unsendable
from spark_cas.log.protocol import Claim

_TRIES = 6
"""Writers that came in between and then aborted push an append aside this often before it gives up."""

POLITE_SECONDS = 0.5
"""How long it is waited for a ledger entry before anybody is fenced: an open transaction may hold it for longer."""

_PAUSE_SECONDS = 0.05
_DELIVERY_SECONDS = 50.0
_COMMIT_SECONDS = 20.0
_VISIBLE_SECONDS = 2.0
_VISIBLE_PAUSE_SECONDS = 0.0005
_FATAL_WITHIN_SECONDS = 0.5
_JITTER = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Shared:
    """What the writers of one process share."""

    spec: KafkaSpec
    admin: Admin
    ledgers: Ledgers
    holders: "dict[str, PartitionWriter]" = field(default_factory=dict)
    """Who holds each transactional id now."""


class PartitionWriter:
    """Appends the chunks of one job to one partition.

    It holds at most one producer instance, and knows the ledger entry that it left: between the two, whatever
    another writer of the job does is noticed before a commit.
    """

    def __init__(self, shared: Shared, plan: Plan, partition: int) -> None:
        spec = shared.spec
        self._spec = spec
        self._admin = shared.admin
        self._ledgers = shared.ledgers
        self._holders = shared.holders
        self._plan = plan
        self._at = TopicPartition(spec.topic, partition)
        checked = plan.expected_offsets[partition] is not None
        self._id = spec.transactional_id(partition, None if checked else plan.job)
        self._producer: TransactionalProducer | None = None
        self._fenced = False
        self._known: Progress | None = None

    def know(self, progress: Progress | None) -> None:
        """Take over the ledger entry that a claim rests on."""
        self._known = progress

    def fence(self) -> None:
        """Become the writer: earlier holders of the id are fenced, what they left open is ended.

        Raises KafkaException, StorageError.
        """
        holder = self._holders.get(self._id)
        if holder is not None and holder is not self:
            holder.give_way()
        self._holders[self._id] = self
        self._drop()
        settings = topic_settings(self._admin, self._at.topic)
        most = None if settings is None else settings.max_message_bytes
        self._producer = TransactionalProducer(self._spec, self._id, most)
        self._producer.init(self._timeout)
        self._fenced = False

    def progress(self, timeout_seconds: float | None = None) -> Progress | None:
        """The job's ledger entry, once nothing that may change it is open. Raises UndecidedError after a timeout."""
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return self._ledgers.of(self._plan.job).read(self._at, self._plan.log_id, timeout)

    def barrier(self) -> Bounds:
        """The partition's bounds once everything in it is decided."""
        return ends.barrier(self._admin, self._at, self._timeout)

    def plainly_refused(self, progress: Progress | None, expected: int | None) -> Refusal | None:
        """A refusal that can be told without fencing anybody, and without waiting for an open transaction.

        Whatever is unclear is no refusal: the append itself finds out. ``progress`` is looked at again after the
        check, because a record behind the expected offset may be of the very job.
        """
        if expected is None:
            return None
        bounds = ends.decided_now(self._admin, self._at)
        if bounds.end_offset < expected <= ends.high_watermark(self._admin, self._at):
            return None
        refusal = self.check(progress, expected, bounds)
        return self._overtaken(progress, POLITE_SECONDS) or refusal if refusal is not None else None

    def check(self, progress: Progress | None, expected: int | None, bounds: Bounds) -> Refusal | None:
        """Whether an expected offset matches: a gap that holds no committed record does.

        ``progress`` is the ledger entry that the claim rests on.
        """
        next_record = None
        if expected is not None and bounds.start_offset <= expected < bounds.end_offset:
            if not _is_own_marker(progress, OffsetRange(expected, bounds.end_offset)):
                next_record = self._next_record(progress, OffsetRange(expected, bounds.end_offset))
            # The gap proves only while nothing that lay in it was trimmed meanwhile.
            bounds = Bounds(ends.start_offset(self._admin, self._at), bounds.end_offset)
        return check_expected(expected, bounds, next_record)

    def _next_record(self, progress: Progress | None, gap: OffsetRange) -> int | None:
        """Offset of the first record that is, or may have been, in a gap; None when there never was one.

        Compaction removes tombstones after a while. So an empty gap of a compacted topic shows nothing unless the
        claim is younger than that, which is known only of the offset that the job's own last chunk left.
        """
        found = first_record(self._spec, self._at, gap)
        if found is not None:
            return found
        settings = topic_settings(self._admin, self._at.topic)
        if settings is not None and not settings.compacted:
            return None
        if settings is None or progress is None or gap.base_offset < progress.end_offset:
            return gap.base_offset
        age_ms = time.time_ns() // 1_000_000 - progress.committed_at_ms
        return None if age_ms < settings.delete_retention_ms // 2 else gap.base_offset

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk, or close the job when it has no records. Raises SchemaError, StorageError."""
        refuse_unsendable(chunk.records)
        if not _same(claim.progress, self._known):
            return Fenced(self._known.task if self._known else None)
        if self._fenced and chunk.records.num_rows:
            return self._why_fenced(claim, chunk) or Fenced(None)
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_SECONDS * 2**attempt * _JITTER.uniform(0.5, 1.5))
            outcome = self._attempt(claim, chunk)
            if isinstance(outcome, Appended):
                self._known = claim.progress_after(chunk, outcome.range)
            if outcome is not None:
                return outcome
        return Unknown(
            f"in each of {_TRIES} tries other writers' records came in between, and none of them was committed. "
            f"Smaller chunks (maxRecordsPerChunk) find a gap between them sooner"
        )

    def _attempt(self, claim: Claim, chunk: Chunk) -> Outcome | None:
        """One transaction; None when nothing of it is visible and another may succeed."""
        try:
            refusal = self._ready(claim, chunk)
            if refusal is not None:
                return refusal
            bounds = self._barrier_for(claim, chunk)
            refusal = self._check_twice(claim, chunk, bounds)
            if refusal is not None:
                return self._overtaken(claim.progress) or refusal
            delivered = self._prepare(claim, chunk, bounds)
        except KafkaException as error:
            return self._failed_before_commit(claim, chunk, error)
        if delivered is None:
            return None
        try:
            self._instance().commit(_COMMIT_SECONDS)
        except KafkaException as error:
            return self._resolve(claim, chunk, delivered, error)
        return self._acknowledge(chunk, delivered, bounds, resolved=False)

    def _ready(self, claim: Claim, chunk: Chunk) -> Refusal | None:
        """Have an instance whose next transaction is safe.

        A new one fences others, so first it is looked whether that would be for nothing; and after that whether
        another writer of the job was at work meanwhile.
        """
        if self._producer is not None and self._producer.proven_clean():
            return None
        if self._producer is None:
            try:
                refusal: Refusal | None = self._overtaken(claim.progress, POLITE_SECONDS)
                if refusal is None and chunk.records.num_rows:
                    refusal = self.plainly_refused(claim.progress, claim.expected_offset)
            except UndecidedError:
                refusal = None
            if refusal is not None:
                return refusal
        self.fence()
        return self._overtaken(claim.progress)

    def _overtaken(self, known: Progress | None, timeout_seconds: float | None = None) -> Fenced | None:
        """Whether the job's ledger entry is not the known one: another writer of the job was at work."""
        progress = self.progress(timeout_seconds)
        return None if _same(progress, known) else Fenced(progress.task if progress else None)

    def _barrier_for(self, claim: Claim, chunk: Chunk) -> Bounds:
        """What an append may rest on. Without a check, somebody's open transaction is no reason to wait."""
        if claim.expected_offset is None or chunk.records.num_rows == 0:
            return ends.undecided(self._admin, self._at)
        return self.barrier()

    def _check_twice(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        if chunk.records.num_rows == 0:
            return None
        refusal = self.check(claim.progress, claim.expected_offset, bounds)
        if isinstance(refusal, Truncated):
            # Said only after a second reading: the first may have come from a broker that was just deposed.
            time.sleep(_PAUSE_SECONDS)
            refusal = self.check(claim.progress, claim.expected_offset, self.barrier())
        return refusal

    def _prepare(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> OffsetRange | None:
        """Everything up to the commit; None, and the transaction aborted, when another writer came in between."""
        producer = self._instance()
        producer.begin()
        at: OffsetRange | None = OffsetRange(bounds.end_offset, bounds.end_offset)
        if chunk.records.num_rows:
            records = fill_timestamps(chunk.records, chunk.time_ms)
            delivered = produce(producer, self._at, records, _DELIVERY_SECONDS)
            at = None if delivered is None else self._place(claim, delivered, bounds)
        if at is None:
            self._abort(producer)
            return None
        self._ledgers.of(self._plan.job).add(
            producer, self._at.topic, claim.plan.log_id, claim.progress_after(chunk, at)
        )
        try:
            # After the records landed: the end of another topic of this name may have fitted just as well.
            require_planned(self._admin, self._at.topic, claim.plan.log_id)
        except ConditionalLogError:
            self._abort(producer)
            raise
        return at

    def _abort(self, producer: TransactionalProducer) -> None:
        if not producer.abort():
            self._drop()

    def _place(self, claim: Claim, delivered: Delivered, bounds: Bounds) -> OffsetRange | None:
        """Where the records lie, when they lie where the claim wants them; else None.

        A record acknowledged without an offset (KIP-192) is placed by the partition's end: when that moved by just
        the number of records, each of them was acknowledged and nobody else's is there.
        """
        wanted = OffsetRange(bounds.end_offset, bounds.end_offset + delivered.count)
        at = delivered.range()
        if at is None and ends.high_watermark(self._admin, self._at) == wanted.end_offset:
            at = wanted
        if claim.expected_offset is None or at == wanted:
            return at
        if at is None or len(at) != delivered.count:
            return None
        return at if self._only_aborted(OffsetRange(bounds.end_offset, at.base_offset)) else None

    def _only_aborted(self, between: OffsetRange) -> bool:
        """Whether what came between the check and our records, which follow one another, was aborted.

        Our open transaction holds the decided end at our first record, once all that lies before it is decided.
        """
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while ends.committed_end(self._admin, self._at) < between.end_offset:
            if time.monotonic() > deadline:
                return False
            time.sleep(_VISIBLE_PAUSE_SECONDS)
        return first_record(self._spec, self._at, between) is None

    def _failed_before_commit(self, claim: Claim, chunk: Chunk, error: KafkaException) -> Outcome | None:
        """No commit was asked for, so nothing of the chunk is or becomes visible: the instance never commits now."""
        code = self._code_of(error)
        meaning = meaning_of(code)
        if meaning is Meaning.REFUSED and self._producer is not None:
            self._producer.abort()  # readers need not wait for the transaction's timeout
        self._drop()
        match meaning:
            case Meaning.FENCED:
                self._fenced = True
                return self._why_fenced(claim, chunk)
            case Meaning.REFUSED:
                raise plain_error(error, f"appending to topic {self._at.topic}", *to_append(self._spec)) from None
            case Meaning.UNKNOWN:
                return Unknown(f"the brokers did not answer as they should ({reason_of(code)})")

    def _code_of(self, error: KafkaException) -> int:
        """What went wrong first: once an instance is fenced, its messages are purged and say no more than that."""
        deadline = time.monotonic() + _FATAL_WITHIN_SECONDS
        while self._producer is not None and error.args[0].code() in PURGED and time.monotonic() < deadline:
            if self._producer.fatal is not None:
                return int(self._producer.fatal.code())
            time.sleep(_VISIBLE_PAUSE_SECONDS)
        return int(error.args[0].code())

    def _why_fenced(self, claim: Claim, chunk: Chunk) -> Outcome | None:
        """The client says no more than that the instance is fenced: the ledger and the log tell by whom.

        Another job may have claimed the partition, which is a conflict once it appended; and to close, which no
        offset decides, the partition is claimed once more.
        """
        overtaken = self._overtaken(claim.progress)
        if overtaken is not None:
            return overtaken
        if chunk.records.num_rows == 0:
            return None
        refusal = self._check_twice(claim, chunk, self._barrier_for(claim, chunk))
        # What lies there now may be of the very job, committed since its ledger was read.
        return self._overtaken(claim.progress) or refusal or Fenced(None)

    def _resolve(self, claim: Claim, chunk: Chunk, at: OffsetRange, error: KafkaException) -> Outcome | None:
        """The commit's reply was lost: the ledger, read when the transaction is decided, tells what became of it."""
        fenced = meaning_of(self._code_of(error)) is Meaning.FENCED
        self._drop()
        try:
            if not fenced:
                # A new instance ends what the old one left undecided. A fenced one has a successor that did.
                self.fence()
            progress = self.progress()
            bounds = ends.undecided(self._admin, self._at)
        except (KafkaException, StorageError):
            return Unknown("the reply to the commit was lost, and the ledger could not be read")
        if _same(progress, claim.progress_after(chunk, at)):
            return self._acknowledge(chunk, at, bounds, resolved=True)
        if not _same(progress, claim.progress):
            return Fenced(progress.task if progress else None)
        return self._why_fenced(claim, chunk) if fenced else None

    def _acknowledge(self, chunk: Chunk, at: OffsetRange, bounds: Bounds, *, resolved: bool) -> Outcome:
        """Committed: wait until readers can see it, and say where the partition goes on.

        What comes right behind the last record can only be the transaction's own marker when the decided end lies
        just behind that; anything more may be somebody's record. Then, and when an open transaction of somebody
        else hides the end, the offset behind the last record is given: it matches as long as the gap up to the end
        holds no record.
        """
        if chunk.records.num_rows == 0:
            return Appended(at, 0, None, bounds.start_offset, has_offset=True, resolved=resolved)
        end = self._decided_end(at)
        if end < at.end_offset and ends.high_watermark(self._admin, self._at) < at.end_offset:
            return Truncated(at.end_offset, end)
        return Appended(
            range=OffsetRange(at.base_offset, end if end == at.end_offset + 1 else at.end_offset),
            count=chunk.records.num_rows,
            timestamp_ms=chunk.time_ms if chunk.records.column("timestamp").null_count else None,
            start_offset=bounds.start_offset,
            has_offset=True,
            resolved=resolved,
        )

    def _decided_end(self, at: OffsetRange) -> int:
        """The end of what is decided, once that covers a range, or when somebody else's transaction holds it."""
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while True:
            end = ends.committed_end(self._admin, self._at)
            # Held below our records, it is held by somebody who wrote before us: no marker of ours moves it.
            if end >= at.end_offset or end < at.base_offset or time.monotonic() > deadline:
                return end
            time.sleep(_VISIBLE_PAUSE_SECONDS)

    @property
    def _timeout(self) -> float:
        return self._spec.claim_timeout_ms / 1000

    def _instance(self) -> TransactionalProducer:
        if self._producer is None:
            msg = "a partition is written only after it was claimed"
            raise AssertionError(msg)
        return self._producer

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._producer = None

    def give_way(self) -> None:
        """Another writer of this process takes the transactional id over: as if it were another process."""
        self._drop()
        self._fenced = True

    def close(self) -> None:
        """Let go of the producer instance."""
        self._drop()


def _same(progress: Progress | None, known: Progress | None) -> bool:
    """Whether two entries tell of the same rows; their end may differ by the offset of a marker."""
    if progress is None or known is None:
        return progress is known
    return (progress.rows, progress.digest, progress.complete) == (known.rows, known.digest, known.complete)


def _is_own_marker(progress: Progress | None, gap: OffsetRange) -> bool:
    """Whether a gap can hold nothing but the marker of the job's own last transaction, which must lie behind it."""
    return (
        progress is not None
        and progress.chunks > 0
        and gap == OffsetRange(progress.end_offset, progress.end_offset + 1)
    )
