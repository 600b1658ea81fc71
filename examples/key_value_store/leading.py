"""Who leads a shard: its newest leader record says so, and a term begins with one.

A term's first append is its leader record, at the offset that the shard was applied up to: once it is there, nothing
of the shard is unknown to the leader, and every other node's next batch is refused.
"""

import random
import time

from key_value_store.following import Follower
from key_value_store.records import Changes, Leader, leader_record
from key_value_store.snapshot import Snapshot
from key_value_store.term import Term, begin_term, term_chunk
from spark_cas.core.digest import RunningDigest
from spark_cas.core.errors import NotLeaderError
from spark_cas.core.guarantee import IDEMPOTENT
from spark_cas.core.outcome import Appended, Conflict, Fenced, Outcome, Unknown
from spark_cas.core.plan import Layout
from spark_cas.core.refusal import error_of
from spark_cas.log.backend import Backend
from spark_cas.log.patience import Wait

SETTLE_SECONDS = 2.0
"""A node is left to lead for so long before another takes over: what it is asked for meanwhile gets done."""

_CHANCE = random.SystemRandom()
_LOOK_EVERY_SECONDS = 0.1
_YIELD_SECONDS = 0.2


class Leadership:
    """One node's part in leading one shard: its term while it leads, and the way there."""

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
        """The node to ask, as far as is known."""
        leader = self._snapshot.leader
        return leader.address if leader else self._preferred

    @property
    def is_named(self) -> bool:
        """Whether this node is the one to ask."""
        return self.hint == self._address

    def require(self, deadline: float) -> Term:
        """The term of this node, begun now if the log says that it leads.

        ``deadline`` is on the steady clock. Raises NotLeaderError; what claiming and appending raise.
        """
        if time.monotonic() > deadline:
            raise self.not_leader()
        if self.term is None:
            if not self.is_named:
                raise self.not_leader()
            self.term = self._begin(deadline)
        return self.term

    def take_over(self, deadline: float) -> None:
        """Become the leader, whoever is, once that one's term has settled. Raises as `require`."""
        if self.term is None:
            self.follower.look()
        known = self._snapshot.leader
        # Two nodes that want each other's shards are not to take them at the same moment, time and again.
        settled = SETTLE_SECONDS * _CHANCE.uniform(1, 1.25)
        while self.term is None and not self.is_named:
            self.follower.look()
            self._refuse_newer_than(known)
            left = self.follower.leader_seen + settled - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_EVERY_SECONDS))
        if self.term is None:
            if not self.is_named:
                self._nominate()
            self.term = self._begin(deadline)

    def prove(self) -> bool:
        """Prove that the state is the newest; False where it was not, and has to be looked at again.

        Raises NotLeaderError, StorageError and the like: then nothing is proven.
        """
        term = self.term
        if term is None:
            return False
        outcome = term.prove()
        if not isinstance(outcome, Appended):
            self.refused(outcome)
            return False
        if not self.follower.catch_up():
            return True
        self._go_on_behind_others()
        return False

    def refused(self, outcome: Outcome) -> None:
        """Step down, and bootstrap again from what was thought to be the upcoming offset.

        Raises the error of an outcome that is no answer to who leads.
        """
        self.term = None
        if isinstance(outcome, Fenced):
            # Who fenced this node appends its leader record next: to claim at once would fence it.
            time.sleep(_YIELD_SECONDS)
        if isinstance(outcome, Conflict | Fenced):
            self.follower.look()
        elif not isinstance(outcome, Appended):
            raise error_of(outcome, self._shard)

    def look(self) -> None:
        """Apply what came without this node, if anything: as a follower, or because it was deposed."""
        before = self._snapshot.leader
        self.follower.look()
        if self._snapshot.leader != before:
            self.term = None

    def not_leader(self) -> NotLeaderError:
        """The error for who asked the wrong node."""
        hint = self.hint
        return NotLeaderError(
            f"shard {self._shard} is led by node {hint}, as far as node {self._address} knows. Nothing was written. "
            f"Ask that one; if it does not answer, have this one take over.",
            leader=hint,
        )

    def go_on_at(self, end_offset: int) -> None:
        """What this node appended below that offset without its term was applied."""
        if self.term is not None:
            self.term.seen_to(end_offset)

    def _go_on_behind_others(self) -> None:
        if self._snapshot.leader is None or self._snapshot.leader.address != self._address:
            self.term = None
        self.go_on_at(self._snapshot.upcoming_offset)

    def _begin(self, deadline: float) -> Term:
        known = self._snapshot.leader
        doing = f"becoming the leader of shard {self._shard}"
        wait = Wait(max(0.0, deadline - time.monotonic()), doing)
        while True:
            term = begin_term(self._log, self._layout, self._shard, self._address, self._snapshot.upcoming_offset)
            if not isinstance(term, Term):
                raise error_of(term, self._shard)
            self.follower.look()
            self._refuse_newer_than(known)
            term.seen_to(self._snapshot.upcoming_offset)
            outcome = term.append(leader_record(self._address))
            if isinstance(outcome, Appended):
                at = outcome.range
                leader = Leader(self._address, at.base_offset)
                self._snapshot.apply(Changes({}, leader), at.end_offset)
                return term
            if not isinstance(outcome, Conflict | Fenced | Unknown):
                raise error_of(outcome, self._shard)
            self.follower.look()
            self._refuse_newer_than(known)
            if not wait.again("others claim it or append to it"):
                raise self.not_leader()

    def _nominate(self) -> None:
        """Have whoever leads step down, before this node claims anything: its next batch meets this record.

        Else a leader that is only busy would find itself fenced, see nobody else, and claim again.
        """
        chunk = term_chunk(leader_record(self._address), self._address, RunningDigest())
        self._log.append_blind(self._shard, self._layout, chunk, IDEMPOTENT)

    def _refuse_newer_than(self, known: Leader | None) -> None:
        leader = self._snapshot.leader
        if leader is not None and leader != known and leader.address != self._address:
            raise self.not_leader()
