"""The writer of one partition for one job: its claim, its appends, and what it does when a reply is lost."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException, TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.errors import ConditionalLogError, StorageError
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Appended, Fenced, LayoutChanged, Outcome, Refusal, Truncated, Unknown, says_lost
from spark_cas.core.plan import BatchProgress, Plan, Progress, progress_expired
from spark_cas.core.records import fill_timestamps
from spark_cas.core.row_claims import check_rows
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.expected_offset import check_gap
from spark_cas.log.kafka.append.placement import Landed, landed, stable_bounds_behind
from spark_cas.log.kafka.append.transaction import Sending, refuse_unsendable
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.codes import NOT_FOUND, PURGED, Meaning, meaning_of, passes, reason_of
from spark_cas.log.kafka.client.error_text import plain_error
from spark_cas.log.kafka.client.retry import second_look
from spark_cas.log.kafka.client.rights import to_append, to_claim
from spark_cas.log.kafka.layouts import TopicLayouts
from spark_cas.log.kafka.ledger import Ledgers, UndecidedError
from spark_cas.log.kafka.reading import first_record
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import require_planned, topic_settings
from spark_cas.log.patience import Wait, anew, within

_MOST_ACTIVE = 8
"""An instance has threads and connections of its own, in use or not."""

_TRIES = 6
"""Writers that came in between and then aborted push an append aside this often before it gives up."""

_NOTHING = "Nothing of this chunk is in the log; what the job appended before stays."
_INTERLEAVED = "other writers interleaved and then aborted"

POLITE_SECONDS = 0.5
"""How long it is waited for a ledger entry before anybody is fenced: an open transaction may hold it for longer."""

_FIRST_PAUSE_SECONDS = 0.1
"""An abort returns before its marker is in the log, where it would come between the next attempt's records."""
_OVERDUE_SECONDS = 1.0
_FATAL_PAUSE_SECONDS = 0.0005
_FATAL_WITHIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Shared:
    """What the writers of one process share."""

    spec: KafkaSpec
    admin: Admin
    ledgers: Ledgers
    layouts: TopicLayouts
    holders: "dict[str, PartitionWriter]" = field(default_factory=dict)
    """Who holds each transactional id now."""
    active: "dict[PartitionWriter, None]" = field(default_factory=dict)
    """Those with a producer instance, whoever used it last at the end."""


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing of the chunk is visible, now or later, and another attempt may append it."""

    why: str
    """In plain words, as part of a sentence."""


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
        self._layouts = shared.layouts
        self._holders = shared.holders
        self._active = shared.active
        self._plan = plan
        self._at = TopicPartition(spec.topic, partition)
        self._id = spec.transactional_id(partition, None if plan.claims(partition) else plan.job)
        self._producer: TransactionalProducer | None = None
        self._fenced = False
        self._known: Progress | None = None
        self._known_under_fence = False
        self._left: Bounds | None = None
        self._begun = math.inf
        """When the instance's last transaction began."""
        self._aborted_rows = 0
        """Rows that were sent and taken back since the last acknowledged chunk."""

    def know(self, progress: Progress | None) -> None:
        """Take over the ledger entry that a claim rests on. It was read under this writer's fence, if that is up."""
        self._known = progress
        self._known_under_fence = self._producer is not None

    def fence(self) -> None:
        """Become the writer: earlier holders of the id are fenced, what they left open is ended.

        Raises KafkaException, StorageError.
        """
        holder = self._holders.get(self._id)
        if holder is not None and holder is not self:
            holder.give_way()
        self._holders[self._id] = self
        self._drop()
        while len(self._active) >= _MOST_ACTIVE:
            next(iter(self._active)).close()
        self._known_under_fence = False
        self._begun = math.inf
        settings = topic_settings(self._admin, self._at.topic)
        most = None if settings is None else settings.max_message_bytes
        self._producer = TransactionalProducer(self._spec, self._id, most)
        self._active[self] = None
        self._producer.init(self._timeout)
        self._fenced = False

    def claim_again(self) -> None:
        """Become the writer, as `fence` does, once the brokers let it. Raises StorageError."""
        wait = Wait(self._spec.patience_seconds, f"claiming partition {self._at.partition} of topic {self._at.topic}")
        while True:
            try:
                return self.fence()
            except KafkaException as error:
                code = error.args[0].code()
                # Fenced: by another claim at the same time.
                goes_on = passes(code, met=True) or meaning_of(code) is Meaning.FENCED
                if not goes_on or not wait.again(reason_of(code)):
                    raise plain_error(error, "claiming a partition", *to_claim(self._spec)) from None

    def progress(self, timeout_seconds: float | None = None) -> Progress | None:
        """The job's ledger entry, once nothing that may change it is open. Raises UndecidedError after a timeout."""
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return self._ledgers.of(self._plan.job).read(self._at, self._plan.log_id, timeout)

    def barrier(self) -> Bounds:
        """The partition's bounds once everything in it is decided."""
        return ends.barrier(self._admin, self._at, self._timeout)

    def forgotten(self, progress: Progress | None, end_offset: int) -> tuple[Progress | None, bool]:
        """The job's ledger entry, and whether there is none although records may be the job's (`progress_expired`).

        Said only after a second look: what came a moment ago may be another attempt's, whose entry is there once it
        is decided, or was aborted.
        """
        plan, partition = self._plan, self._at.partition
        if not progress_expired(plan, partition, progress, end_offset):
            return progress, False
        bounds, progress = self.barrier(), self.progress()
        return progress, progress is None and self._check(None, plan.end_offsets[partition], bounds) is not None

    def precheck(self, progress: Progress | None, expected: int | None) -> Refusal | None:
        """A refusal that can be told without fencing anybody, and without waiting for an open transaction.

        Whatever is unclear is no refusal: the append itself finds out. ``progress`` is looked at again after the
        check, because a record behind the expected offset may be of the very job.
        """
        if expected is None:
            return None
        bounds = ends.stable_bounds(self._admin, self._at)
        if bounds.end_offset < expected <= ends.high_watermark(self._admin, self._at):
            return None
        refusal = self._check(progress, expected, bounds)
        return self._overtaken(progress, POLITE_SECONDS) or refusal if refusal is not None else None

    def append(self, claim: Claim, chunk: Chunk) -> Outcome:
        """Append a chunk, or close the job when it has no records.

        Until the patience is over, an attempt that failed before its commit is made again, and one whose commit got
        no reply is resolved from the ledger. Raises SchemaError, StorageError: nothing of the chunk is visible.
        """
        refuse_unsendable(chunk.records)
        with within(self._spec.patience_seconds):
            return self._append(claim, chunk)

    def _append(self, claim: Claim, chunk: Chunk) -> Outcome:
        if self in self._active:
            self._active[self] = self._active.pop(self)
        if not _same(claim.progress, self._known):
            return Fenced(self._known.task if self._known else None)
        if self._fenced and chunk.records.num_rows:
            why = self._why_fenced(claim, chunk, timed_out=False)
            return Fenced(None) if isinstance(why, Again) else why
        doing = f"appending to partition {self._at.partition} of topic {self._at.topic}"
        wait = Wait(self._spec.patience_seconds, doing, _FIRST_PAUSE_SECONDS)
        attempts = interleaved = 0
        while True:
            attempts += 1
            try:
                outcome = self._attempt(claim, chunk)
            except StorageError as error:
                raise type(error)(f"{error.message} {_NOTHING}") from None
            if isinstance(outcome, Appended):
                aborted_rows, self._aborted_rows = self._aborted_rows, 0
                return replace(outcome, attempts=attempts, aborted_rows=aborted_rows)
            if not isinstance(outcome, Again):
                return outcome
            interleaved += outcome.why == _INTERLEAVED
            if interleaved == _TRIES:
                raise StorageError(
                    f"{doing}: in all {_TRIES} attempts {_INTERLEAVED}. {_NOTHING} "
                    f"Smaller chunks (maxRecordsPerChunk) find a gap between them sooner."
                )
            if not wait.again(outcome.why):
                raise StorageError(
                    f"{doing}: {outcome.why}. It was tried again for {wait.waited:.0f} s. {_NOTHING} Check that the "
                    f"brokers are well, then run the same job again."
                )

    def _attempt(self, claim: Claim, chunk: Chunk) -> Outcome | Again:
        """One transaction."""
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
        if not isinstance(delivered, Landed):
            return delivered
        try:
            self._instance().commit()
        except KafkaException as error:
            # What became of it is found out whatever is left of the patience.
            with anew(self._spec.patience_seconds):
                return self._resolve(claim, chunk, delivered, error)
        return self._acknowledge(claim, chunk, delivered, bounds)

    def _ready(self, claim: Claim, chunk: Chunk) -> Refusal | None:
        """Have an instance whose next transaction is safe, and the ledger entry as it is since its fence is up.

        A new one fences others, so first it is looked whether that would be for nothing; and after that whether
        another writer of the job was at work meanwhile.
        """
        if self._known_under_fence and self._producer is not None and self._producer.proven_clean():
            return None
        refusal: Refusal | None
        if self._producer is None:
            try:
                refusal = self._overtaken(claim.progress, POLITE_SECONDS)
                if refusal is None and chunk.records.num_rows:
                    refusal = self.precheck(claim.progress, claim.expected_offset)
            except UndecidedError:
                refusal = None
            if refusal is not None:
                return refusal
        self.fence()
        # After the fence and not before: whoever expands the log records that first, and then fences.
        refusal = self._overtaken(claim.progress) or self._layouts.changed(claim.plan)
        self._known_under_fence = refusal is None
        return refusal

    def _overtaken(self, known: Progress | None, timeout_seconds: float | None = None) -> Fenced | None:
        """Whether the job's ledger entry is not the known one: another writer of the job was at work."""
        progress = self.progress(timeout_seconds)
        return None if _same(progress, known) else Fenced(progress.task if progress else None)

    def _barrier_for(self, claim: Claim, chunk: Chunk) -> Bounds:
        """What an append may rest on. Without a check, somebody's open transaction is no reason to wait.

        Right behind the instance's own last append nobody is asked: records that land just there prove as well that
        nothing came in between. When they do not, the next try asks.
        """
        left, self._left = self._left, None
        if not _checked(claim, chunk) or chunk.records.num_rows == 0:
            return ends.bounds_to_high_watermark(self._admin, self._at)
        if left is not None and left.end_offset == claim.expected_offset:
            return left
        return self.barrier()

    def _check(self, progress: Progress | None, expected: int | None, bounds: Bounds) -> Refusal | None:
        return check_gap(self._spec, self._admin, self._at, expected, bounds, progress=progress)

    def _check_twice(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        if chunk.records.num_rows == 0:
            return None
        refusal = self._check_all(claim, chunk, bounds)
        wait = second_look(self._admin, f"looking where partition {self._at.partition} ends")
        while says_lost(refusal):
            # A broker that was deposed, and does not know it yet, answers as of then.
            self._admin.forget_leaders(self._at.topic)
            if not wait.again("it ends before what was seen of it"):
                break
            refusal = self._check_all(claim, chunk, self.barrier())
        return refusal

    def _check_all(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        """Whether the claim, and those of the rows, hold where the partition has these bounds."""

        def nothing_since(offset: int) -> bool:
            return self._check(claim.progress, offset, bounds) is None

        refusal = self._check(claim.progress, claim.expected_offset, bounds)
        return refusal or check_rows(
            chunk, bounds.end_offset, lambda offset: claim.lets_expect(offset, nothing_since)
        )

    def _prepare(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Landed | LayoutChanged | Again:
        """Everything up to the commit, or the transaction is aborted."""
        producer = self._instance()
        producer.begin()
        self._begun = time.monotonic()
        try:
            sent = self._send(claim, chunk, bounds)
            if isinstance(sent, Again):
                self._abort(producer)
                return sent
            # After the records landed: the end of another topic of this name may have fitted just as well.
            count = len(require_planned(self._admin, self._at.topic, claim.plan.log_id).partitions)
        except ConditionalLogError:
            self._abort(producer)
            raise
        # Another tool shuts nobody out. Fewer than planned are only what this broker knows yet.
        if count > claim.plan.layout_epoch and chunk.records.num_rows:
            self._abort(producer)
            return LayoutChanged(claim.plan.layout_epoch, count)
        return sent

    def _send(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Landed | Again:
        """Have a chunk's records and ledger entry in the open transaction."""
        wanted = OffsetRange(bounds.end_offset, bounds.end_offset + chunk.records.num_rows)
        if chunk.records.num_rows == 0:
            self._entering(claim, chunk, wanted)()
            return Landed(wanted, has_offset=True, log_append_ms=None)
        sending = Sending(self._instance(), self._at, fill_timestamps(chunk.records, chunk.time_ms))
        # Beside the records, not after them: nearly always they land where it says.
        entered = self._entering(claim, chunk, wanted)
        try:
            arrived = sending.arrive(self._spec.delivery_seconds + _OVERDUE_SECONDS)
        except KafkaException:
            # The transaction can be aborted only once the client is done with it.
            with suppress(KafkaException):
                entered()
            raise
        entered()
        if not arrived:
            return Again("the brokers did not acknowledge the records in time")
        checked = _checked(claim, chunk)
        sent = landed(self._spec, self._admin, self._at, sending.delivered(), bounds.end_offset, checked=checked)
        if sent is None:
            self._aborted_rows += chunk.records.num_rows
            return Again(_INTERLEAVED)
        if sent.at != wanted:
            self._entering(claim, chunk, sent.at)()
        return sent

    def _entering(self, claim: Claim, chunk: Chunk, at: OffsetRange) -> Callable[[], None]:
        """Begin to put the job's ledger entry into the open transaction, in place of one that is there."""
        progress = claim.progress_after(chunk, at)
        ledger = self._ledgers.of(self._plan.job)
        return ledger.adding(self._instance(), self._at.topic, claim.plan.log_id, progress)

    def _abort(self, producer: TransactionalProducer) -> None:
        if not producer.abort():
            self._drop()

    def _failed_before_commit(self, claim: Claim, chunk: Chunk, error: KafkaException) -> Outcome | Again:
        """No commit was asked for, so nothing of the chunk is or becomes visible: the instance never commits now."""
        timed_out = self._timed_out()
        code = self._code_of(error)
        meaning = meaning_of(code)
        if meaning is Meaning.REFUSED and self._producer is not None:
            self._producer.abort()  # readers need not wait for the transaction's timeout
        self._drop()
        if meaning is Meaning.FENCED:
            self._fenced = True
            return self._why_fenced(claim, chunk, timed_out=timed_out)
        if meaning is Meaning.REFUSED and code not in NOT_FOUND:
            raise plain_error(error, f"appending to topic {self._at.topic}", *to_append(self._spec)) from None
        if code in NOT_FOUND:
            # A leader that is new may not know its topic yet, but it may as well be gone.
            require_planned(self._admin, self._at.topic, claim.plan.log_id)
        return Again(reason_of(code))

    def _code_of(self, error: KafkaException) -> int:
        """What went wrong first: once an instance is fenced, its messages are purged and say no more than that."""
        deadline = time.monotonic() + _FATAL_WITHIN_SECONDS
        while self._producer is not None and error.args[0].code() in PURGED and time.monotonic() < deadline:
            if self._producer.fatal is not None:
                return int(self._producer.fatal.code())
            with suppress(KafkaException), self._producer.watched():
                self._producer.client.poll(_FATAL_PAUSE_SECONDS)
        return int(error.args[0].code())

    def _timed_out(self) -> bool:
        """Whether the transaction has been open for so long that the brokers may have ended it."""
        return time.monotonic() - self._begun >= self._spec.transaction_timeout_ms / 1000

    def _why_fenced(self, claim: Claim, chunk: Chunk, *, timed_out: bool) -> Outcome | Again:
        """The client says no more than that the instance is fenced: the ledger and the log tell by whom.

        Another job may have claimed the partition, which is a conflict once it appended; and to close, which no
        offset decides, the partition is claimed once more. So it is when nobody is seen, and the transaction was open
        for so long that the brokers ended it, which looks the same: no two writers can keep on fencing each other so.
        """
        overtaken = self._overtaken(claim.progress)
        if overtaken is not None:
            return overtaken
        changed = self._layouts.changed(claim.plan)
        if changed is not None:
            return changed
        if chunk.records.num_rows == 0:
            return Again("another writer claimed the partition")
        refusal = self._check_twice(claim, chunk, self._barrier_for(claim, chunk))
        # What lies there now may be of the very job, committed since its ledger was read.
        refusal = self._overtaken(claim.progress) or refusal
        if refusal is None and timed_out:
            return Again("the brokers ended the transaction, which was open for too long")
        return refusal or Fenced(None)

    def _resolve(self, claim: Claim, chunk: Chunk, sent: Landed, error: KafkaException) -> Outcome | Again:
        """The commit's reply was lost: the ledger, read when the transaction is decided, tells what became of it."""
        timed_out = self._timed_out()
        fenced = meaning_of(self._code_of(error)) is Meaning.FENCED
        self._drop()
        try:
            if not fenced:
                # A new instance ends what the old one left undecided. A fenced one has a successor that did.
                self.claim_again()
            progress = self.progress()
            bounds = ends.bounds_to_high_watermark(self._admin, self._at)
            # To the letter: another attempt at the same chunk leaves the same rows elsewhere. And the ledger may have
            # been told by a coordinator that was deposed and does not know it yet.
            committed = progress == claim.progress_after(chunk, sent.at) or self._is_visible(chunk, sent)
        except ConditionalLogError:
            return Unknown("the reply to the commit was lost, and the ledger could not be read")
        if committed:
            return self._acknowledge(claim, chunk, sent, bounds, resolved=True)
        if not _same(progress, claim.progress):
            return Fenced(progress.task if progress else None)
        self._aborted_rows += chunk.records.num_rows
        if fenced:
            return self._why_fenced(claim, chunk, timed_out=timed_out)
        return Again("the commit failed, and the ledger tells so")

    def _is_visible(self, chunk: Chunk, sent: Landed) -> bool:
        """Whether a committed record lies where ours were sent: offsets are given once, so it is ours."""
        if chunk.records.num_rows == 0:
            return False
        self.barrier()
        return first_record(self._spec, self._at, sent.at) is not None

    def _acknowledge(
        self, claim: Claim, chunk: Chunk, sent: Landed, bounds: Bounds, *, resolved: bool = False
    ) -> Outcome:
        """Committed, so the claim is used up; wait until readers can see it."""
        self._known = claim.progress_after(chunk, sent.at)
        if chunk.complete:
            # A process may run thousands of jobs.
            self.close()
        if chunk.records.num_rows == 0:
            return Appended(sent.at, 0, None, bounds.start_offset, has_offset=True, resolved=resolved)
        try:
            return self._visible(chunk, sent, resolved=resolved)
        except ConditionalLogError:
            self._drop()
            return Unknown("it was committed, but then the brokers did not say whether the log still holds it")

    def _visible(self, chunk: Chunk, sent: Landed, *, resolved: bool) -> Outcome:
        """Wait until readers can see a chunk, and say where the partition goes on.

        What comes right behind the last record can only be the transaction's own marker when the decided end lies
        just behind that; anything more may be somebody's record. Then, and when an open transaction of somebody
        else hides the end, the offset behind the last record is given: it matches as long as the gap up to the end
        holds no record.
        """
        at = sent.at
        wait = second_look(self._admin, f"looking for what was committed to partition {self._at.partition}")
        decided = stable_bounds_behind(self._admin, self._at, at)
        while decided.end_offset < at.end_offset and ends.high_watermark(self._admin, self._at) < at.end_offset:
            # As above.
            self._admin.forget_leaders(self._at.topic)
            if not wait.again("it is not there"):
                return Truncated(at.end_offset, decided.end_offset)
            decided = stable_bounds_behind(self._admin, self._at, at)
        end = decided.end_offset
        own = end == at.end_offset + 1
        self._left = decided if own and self._producer is not None else None
        given_ms = chunk.time_ms if chunk.records.column("timestamp").null_count else None
        return Appended(
            range=OffsetRange(at.base_offset, end if own else at.end_offset),
            count=chunk.records.num_rows,
            timestamp_ms=given_ms if sent.log_append_ms is None else sent.log_append_ms,
            start_offset=decided.start_offset,
            has_offset=sent.has_offset,
            resolved=resolved,
        )

    @property
    def _timeout(self) -> float:
        return self._spec.claim_timeout_ms / 1000

    def _instance(self) -> TransactionalProducer:
        if self._producer is None:
            msg = "a partition is written only after it was claimed"
            raise AssertionError(msg)
        return self._producer

    def _drop(self) -> None:
        self._active.pop(self, None)
        if self._producer is not None:
            self._producer.close()
        self._producer = None
        self._left = None

    def give_way(self) -> None:
        """Another writer of this process takes the transactional id over: as if it were another process."""
        self._drop()
        self._fenced = True

    def close(self) -> None:
        """Let go of the producer instance: the next append makes one, if no other writer of the job was at work."""
        self._drop()


def _checked(claim: Claim, chunk: Chunk) -> bool:
    """Whether it matters where the records land."""
    return claim.expected_offset is not None or chunk.claims is not None


def _same(progress: Progress | None, known: Progress | None) -> bool:
    """Whether two entries tell of the same rows; their end may differ by the offset of a marker."""
    if progress is None or known is None:
        return progress is known
    return _told(progress) == _told(known)


def _told(progress: Progress) -> tuple[int, str, bool, BatchProgress | None]:
    return progress.rows, progress.digest, progress.complete, progress.batch
