"""How a job stands in a partition: its ledger entry, and whether its claim, and those of its rows, still hold."""

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Fenced, LayoutChanged, Refusal, says_lost
from spark_cas.core.plan import BatchProgress, Plan, Progress, is_complete, progress_expired, resume_offset
from spark_cas.core.row_claims import check_rows
from spark_cas.log.kafka import ends
from spark_cas.log.kafka.append.gap import check_gap
from spark_cas.log.kafka.client.admin import Admin
from spark_cas.log.kafka.client.ask import second_look
from spark_cas.log.kafka.client.kept_clients import ClientSet
from spark_cas.log.kafka.client.readers import Readers
from spark_cas.log.kafka.ledger import Ledger
from spark_cas.log.kafka.registry.layouts import TopicLayouts
from spark_cas.log.kafka.spec import KafkaSpec
from spark_cas.log.kafka.topic_settings import require_planned

POLITE_SECONDS = 0.5
"""How long it is waited for a ledger entry before anybody is fenced: an open transaction may hold it for longer."""


@dataclass(frozen=True, slots=True)
class Checks:
    """A job in a partition, as the brokers tell when they are asked, or told just now; nobody is fenced."""

    clients: ClientSet
    layouts: TopicLayouts
    plan: Plan
    at: TopicPartition

    @property
    def spec(self) -> KafkaSpec:
        """Of the log."""
        return self.readers.spec

    @property
    def admin(self) -> Admin:
        """Who asks."""
        return self.clients.admin

    @property
    def readers(self) -> Readers:
        """Who reads."""
        return self.clients.readers

    @property
    def ledger(self) -> Ledger:
        """The job's."""
        return Ledger(self.clients.members, self.plan.job)

    def progress(self, timeout_seconds: float | None = None) -> Progress | None:
        """The job's ledger entry, once nothing that may change it is open. Raises UndecidedError after a timeout."""
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return self.ledger.read(self.at, self.plan.log_id, timeout)

    def fenced_progress(self) -> Progress | None:
        """The job's ledger entry since a fence is up, which nobody else can change.

        Where no offset is expected it alone tells which rows are in the log, and so does one by which all of them
        are: then it has to be proven that who tells it has not been deposed. Raises UndecidedError, StorageError.
        """
        if resume_offset(self.plan, self.at.partition, None) is not None:
            found = self.progress()
            if not is_complete(found):
                return found
        return self._proven_progress(self._timeout)

    def barrier(self) -> Bounds:
        """The partition's bounds once everything in it is decided."""
        return ends.barrier(self.admin, self.at, self._timeout)

    def bounds_for(self, claim: Claim, chunk: Chunk) -> Bounds:
        """What an append may rest on. Without a check, somebody's open transaction is no reason to wait."""
        if not chunk.records.num_rows or not is_checked(claim, chunk):
            return ends.bounds_to_high_watermark(self.admin, self.at)
        return self.barrier()

    def changed(self, plan: Plan) -> LayoutChanged | None:
        """Whether a plan is void, as `TopicLayouts.changed` tells: that of a claim may be an earlier one."""
        return self.layouts.changed(plan)

    def overtaken(self, known: Progress | None, timeout_seconds: float | None = None) -> Fenced | None:
        """Whether the job's ledger entry is not the known one: another writer of the job was at work.

        Where it is the known one a refusal is definite: so it is proven.
        """
        timeout = self._timeout if timeout_seconds is None else timeout_seconds
        return taken_over(self._proven_progress(timeout), known)

    def forgotten(self, progress: Progress | None, end_offset: int) -> tuple[Progress | None, bool]:
        """The job's ledger entry, and whether there is none although records may be the job's (`progress_expired`).

        Said only after a second look: what came a moment ago may be another attempt's, whose entry is there once it
        is decided, or was aborted.
        """
        if not progress_expired(self.plan, self.at.partition, progress, end_offset):
            return progress, False
        planned = self.plan.end_offsets[self.at.partition]

        def look() -> Refusal | None:
            return self.check_offset(None, planned, self.barrier())

        refusal = self._looked_again(look(), look)
        # After the looks: whoever committed before one of them has an entry by now.
        progress = self.progress()
        return progress, refusal is not None and progress is None

    def precheck(self, progress: Progress | None, expected: int | None) -> Refusal | None:
        """A refusal that can be told without fencing anybody, and without waiting for an open transaction.

        Whatever is unclear is no refusal: the append itself finds out. ``progress`` is looked at again after the
        check, because a record behind the expected offset may be of the very job.
        """
        if expected is None:
            return None
        refusal = self.check_offset(progress, expected, ends.stable_bounds(self.admin, self.at))
        # That the log lost records is said after a second look only.
        if refusal is None or says_lost(refusal):
            return None
        return self.overtaken(progress, POLITE_SECONDS) or refusal

    def check(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        """Whether the claim, and those of the rows, hold where the partition has these bounds."""
        if not chunk.records.num_rows:
            return None
        refusal = self._check_all(claim, chunk, bounds)
        return self._looked_again(refusal, lambda: self._check_all(claim, chunk, self.barrier()))

    def why_fenced(self, claim: Claim, chunk: Chunk) -> Refusal | None:
        """Who fenced a writer: its client says no more than that somebody did, the ledger and the log tell by whom.

        Another job may have claimed the partition, which is a conflict once it appended. None when nobody is seen.
        """
        told = self.overtaken(claim.progress) or self.changed(claim.plan)
        if told is not None or not chunk.records.num_rows:
            return told
        refusal = self.check(claim, chunk, self.bounds_for(claim, chunk))
        # What lies there now may be of the very job, committed since its ledger was read.
        return self.overtaken(claim.progress) or refusal

    def _proven_progress(self, timeout_seconds: float) -> Progress | None:
        """The job's ledger entry as a coordinator tells it that has not been deposed.

        Of a plan that is not recorded, under which nobody else writes, whoever answers is believed: there may be no
        registry.
        """
        proven = bool(self.plan.pinned_by)
        return self.ledger.read(self.at, self.plan.log_id, timeout_seconds, proven=proven)

    def _looked_again(self, refusal: Refusal | None, look: Callable[[], Refusal | None]) -> Refusal | None:
        """A refusal, or what a later look finds where it says that the log lost records."""
        wait = second_look(self.admin, f"looking where partition {self.at.partition} ends")
        while says_lost(refusal):
            # A broker that was deposed, and does not know it yet, answers as of then.
            self.admin.forget_leaders(self.at.topic)
            if not wait.again("it ends before what was seen of it"):
                # It may have been deleted, and another one made of its name.
                require_planned(self.admin, self.at.topic, self.plan.log_id)
                break
            refusal = look()
        return refusal

    def _check_all(self, claim: Claim, chunk: Chunk, bounds: Bounds) -> Refusal | None:
        def nothing_since(offset: int) -> bool:
            return self.check_offset(claim.progress, offset, bounds) is None

        refusal = self.check_offset(claim.progress, claim.expected_offset, bounds)
        return refusal or check_rows(
            chunk, bounds.end_offset, lambda offset: claim.lets_expect(offset, nothing_since)
        )

    def check_offset(self, progress: Progress | None, expected: int | None, bounds: Bounds) -> Refusal | None:
        """Whether an expected offset matches, where the job has come so far and the partition has these bounds."""
        return check_gap(self.readers, self.admin, self.at, expected, bounds, progress=progress)

    @property
    def _timeout(self) -> float:
        return self.spec.claim_timeout_ms / 1000


def is_checked(claim: Claim, chunk: Chunk) -> bool:
    """Whether it matters where the records land."""
    return claim.expected_offset is not None or chunk.claims is not None


def fenced_by(progress: Progress | None) -> Fenced:
    """Fenced by whoever wrote a ledger entry."""
    return Fenced(progress.task if progress else None)


def taken_over(progress: Progress | None, known: Progress | None) -> Fenced | None:
    """Fenced by whoever wrote an entry, unless it tells of the rows that are known."""
    return None if same_rows(progress, known) else fenced_by(progress)


def same_rows(progress: Progress | None, known: Progress | None) -> bool:
    """Whether two entries tell of the same rows; their end may differ by the offset of a marker."""
    if progress is None or known is None:
        return progress is known
    return _told(progress) == _told(known)


def _told(progress: Progress) -> tuple[int, str, bool, BatchProgress | None]:
    return progress.rows, progress.digest, progress.complete, progress.batch
