"""The leader of a shard is the node in its newest leader record, and a term begins with this record.

The leader appends this record at the offset up to which it has applied the shard. After this append, the leader has
applied all records of the shard, and the log rejects the next batch of every other node.
"""

import random
import time

from key_value_store.errors import NotLeaderError
from key_value_store.following import Follower
from key_value_store.records import Changes, Leader, leader_record
from key_value_store.snapshot import Snapshot
from key_value_store.term import Term, begin_term, term_chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.guarantee import IDEMPOTENT
from spark_cas.core.outcome import Appended, Conflict, Fenced, Outcome, Unknown, error_of
from spark_cas.core.plan import Layout
from spark_cas.log.backend import Backend
from spark_cas.log.deadline import Wait

SETTLE_SECONDS = 2.0
"""The time for which a leader keeps its term before another node takes over, so that it can serve requests."""

_CHANCE = random.SystemRandom()
_SETTLE_POLL_SECONDS = 0.1
_YIELD_SECONDS = 0.2


class Leadership:
    """The role of one node in one shard: its term while it leads, and the steps to become the leader."""

    def __init__(
        self, log: Backend, layout: Layout, shard: int, snapshot: Snapshot, *, address: str, preferred: str
    ) -> None:
        self.term: Term | None = None
        self.follower = Follower(log, shard, snapshot)
        self._log = log
        self._layout = layout
        self._shard = shard
        self._snapshot = snapshot
        self._address = address
        self._preferred = preferred

    @property
    def hint(self) -> str:
        """The address of the leader, as far as the node knows."""
        leader = self._snapshot.leader
        return leader.address if leader else self._preferred

    @property
    def is_named(self) -> bool:
        """Whether the hint is this node."""
        return self.hint == self._address

    def require(self, deadline: float) -> Term:
        """Return the term of this node. If the log names this node as the leader and it has no term, begin one.

        Args:
            deadline: A time on the monotonic clock.

        Raises:
            NotLeaderError: Another node leads, or the deadline has passed.
            ConditionalLogError: The claim or the append failed.
        """
        if time.monotonic() > deadline:
            raise self.not_leader()
        if self.term is None:
            if not self.is_named:
                raise self.not_leader()
            self.term = self._begin(deadline)
        return self.term

    def take_over(self, deadline: float) -> None:
        """Become the leader, after the term of the current leader has lasted for `SETTLE_SECONDS`.

        Raises the errors of `require`.
        """
        if self.term is None:
            self.follower.read()
        known = self._snapshot.leader
        # The jitter prevents two nodes from repeatedly taking each other's shards at the same time.
        settled = SETTLE_SECONDS * _CHANCE.uniform(1, 1.25)
        while self.term is None and not self.is_named:
            self.follower.read()
            self._reject_newer_leader(known)
            remaining = self.follower.leader_read_at + settled - time.monotonic()
            if remaining <= 0:
                break
            time.sleep(min(remaining, _SETTLE_POLL_SECONDS))
        if self.term is None:
            if not self.is_named:
                self._nominate()
            self.term = self._begin(deadline)

    def prove(self) -> bool:
        """Verify that the state is current. Return False if it was not; the caller then decides again.

        Raises NotLeaderError, StorageError and other errors of the log. Then nothing is verified.
        """
        term = self.term
        if term is None:
            return False
        outcome = term.prove()
        if not isinstance(outcome, Appended):
            self.step_down(outcome)
            return False
        if not self.follower.catch_up():
            return True
        self._adopt_new_records()
        return False

    def step_down(self, outcome: Outcome) -> None:
        """End the term after a rejected append, and apply the new records from the expected offset on.

        If the outcome does not show whether another node leads, raises the error of this outcome.
        """
        self.term = None
        if isinstance(outcome, Fenced):
            # The node that fenced this one appends its leader record next. An immediate claim would fence that node.
            time.sleep(_YIELD_SECONDS)
        if isinstance(outcome, Conflict | Fenced):
            self.follower.read()
        elif not isinstance(outcome, Appended):
            raise error_of(outcome, self._shard)

    def poll(self) -> None:
        """Apply the new records of other nodes, and end the term if they name another leader."""
        before = self._snapshot.leader
        self.follower.read()
        if self._snapshot.leader != before:
            self.term = None

    def not_leader(self) -> NotLeaderError:
        """Return the error for a request to a node that does not lead the shard."""
        hint = self.hint
        return NotLeaderError(
            f"node {self._address} does not lead shard {self._shard}; the leader may be node {hint}. Nothing was "
            f"written. Send the request to that node. If it does not respond, call lead on this one.",
            leader=hint,
        )

    def advance_to(self, end_offset: int) -> None:
        """Expect the next batch at this offset, after a transaction of this node below it was applied."""
        if self.term is not None:
            self.term.advance_to(end_offset)

    def _adopt_new_records(self) -> None:
        if self._snapshot.leader is None or self._snapshot.leader.address != self._address:
            self.term = None
        self.advance_to(self._snapshot.upcoming_offset)

    def _begin(self, deadline: float) -> Term:
        known = self._snapshot.leader
        doing = f"becoming the leader of shard {self._shard}"
        wait = Wait(max(0.0, deadline - time.monotonic()), doing)
        while True:
            term = begin_term(self._log, self._layout, self._shard, self._address, self._snapshot.upcoming_offset)
            if not isinstance(term, Term):
                raise error_of(term, self._shard)
            self.follower.read()
            self._reject_newer_leader(known)
            term.advance_to(self._snapshot.upcoming_offset)
            outcome = term.append(leader_record(self._address))
            if isinstance(outcome, Appended):
                at = outcome.range
                leader = Leader(self._address, at.base_offset)
                self._snapshot.apply(Changes({}, leader), at.end_offset)
                return term
            if not isinstance(outcome, Conflict | Fenced | Unknown):
                raise error_of(outcome, self._shard)
            self.follower.read()
            self._reject_newer_leader(known)
            if not wait.again("other nodes claim the shard or append to it"):
                raise self.not_leader()

    def _nominate(self) -> None:
        """Append a leader record without a claim, so that the current leader steps down first.

        The next batch of that leader conflicts with this record. Without this record, a claim would only fence the
        leader. A busy leader would then read no other leader in the log, and claim again.
        """
        chunk = term_chunk(leader_record(self._address), self._address, RunningDigest())
        self._log.append_blind(self._shard, self._layout, chunk, IDEMPOTENT)

    def _reject_newer_leader(self, known: Leader | None) -> None:
        leader = self._snapshot.leader
        if leader is not None and leader != known and leader.address != self._address:
            raise self.not_leader()
