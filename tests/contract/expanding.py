"""Expansion: no row of an earlier layout is ever at or after a threshold."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from spark_cas.core.errors import LayoutChangedError, LogNotFoundError, OptionError
from spark_cas.core.expansion import Expansion
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.outcome import Appended, LayoutChanged
from spark_cas.core.plan import BY_KEY, BY_PARTITION, MOST_PARTITIONS
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.append_once import append_once
from spark_cas.log.load.planning import complete_job, pin_plan
from tests.contract.base import ContractBase, NewBackend, at_once
from tests.support.batches import run_batch
from tests.support.faults import Fault, FaultyLog, InjectedFaultError, When
from tests.support.loads import crash_after_chunks, rows_of, run_job, void
from tests.support.raising import raises
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in

STEPS = ("begin_expansion", "end_partition", "add_partitions", "finish_expansion")
"""The operations of an expansion that change the log. The others only read."""


def only_expansion(backend: Backend, partitions: int) -> Expansion:
    """Return the only expansion of a log and check that it led to this number of partitions."""
    layouts = backend.layouts()
    (expansion,) = layouts.expansions
    assert layouts.pending is None
    assert (expansion.partitions, expansion.epoch) == (partitions, backend.layout().epoch)
    assert backend.layout() == layouts.layout
    return expansion


def require_all_below(backend: Backend, expansion: Expansion) -> None:
    """Check that each threshold is the end of its partition, after all records that were appended before."""
    assert expansion.thresholds == tuple(backend.bounds(each).end_offset for each in range(expansion.before))


class ExpandContract(ContractBase):
    """More partitions, in the order of KIP-253."""

    def test_an_expanded_log_has_more_partitions_and_knows_where_the_earlier_ones_ended(
        self, backend: Backend
    ) -> None:
        append_foreign(backend, 0, *"abc")
        before = backend.layout()
        would_be = expand_log(backend, 5, dry_run=True)
        assert (backend.layout(), backend.layouts().pending) == (before, None)
        layout = expand_log(backend, 5)
        assert would_be == replace(before, partitions=5)
        assert (layout.log_id, layout.partitions) == (before.log_id, 5)
        assert layout.epoch > before.epoch
        with self.reopen(backend) as other:
            expansion = only_expansion(other, 5)
            require_all_below(other, expansion)
            assert expansion.before == self.partitions
            assert other.layout() == layout
            append_foreign(other, 4, "x")
            append_foreign(other, 0, "d")
            assert (values_in(backend, 0), values_in(backend, 4)) == ([*"abcd"], ["x"])
            assert other.layouts().expansions == (expansion,)

    def test_a_log_is_expanded_over_and_over(self, new_backend: NewBackend) -> None:
        with new_backend() as backend:
            backend.create(1)
            for count in (2, 4, 5):
                for each in range(backend.layout().partitions):
                    append_foreign(backend, each, f"{count}")
                expand_log(backend, count)
            history = backend.layouts().expansions
            assert [each.partitions for each in history] == [2, 4, 5]
            assert [each.before for each in history] == [1, 2, 4]
            firsts = [each.thresholds[0] for each in history]
            assert firsts == sorted(set(firsts))
            assert [values_in(backend, each) for each in range(5)] == [["2", "4", "5"], ["4", "5"], ["5"], ["5"], []]

    @pytest.mark.parametrize("count", [0, 2, 3])
    def test_a_log_gets_no_fewer_and_not_as_many_partitions(self, backend: Backend, count: int) -> None:
        before = backend.layouts()
        with pytest.raises(OptionError, match=f"has 3 partitions, and cannot be expanded to {count}"):
            expand_log(backend, count)
        assert backend.layouts() == before
        append_foreign(backend, 0, "x")

    def test_partition_count_has_a_maximum(self, backend: Backend) -> None:
        with pytest.raises(OptionError, match="100000 at most"):
            expand_log(backend, MOST_PARTITIONS + 1)
        assert backend.layouts().pending is None

    def test_an_expansion_that_the_log_would_refuse_is_not_begun(self, backend: Backend) -> None:
        with pytest.raises(InjectedFaultError):
            expand_log(FaultyLog(backend, Fault("check_partitions_may_be_added", 1, When.BEFORE)), 5)
        assert backend.layouts().pending is None
        append_foreign(backend, 0, "a")

    def test_a_log_that_is_not_there_is_not_expanded(self, new_backend: NewBackend) -> None:
        with new_backend() as backend, pytest.raises(LogNotFoundError):
            expand_log(backend, 4)

    def test_end_read_before_an_expansion_matches_after_it(self, backend: Backend) -> None:
        append_foreign(backend, 0, *"ab")
        seen = backend.bounds(0).end_offset
        expand_log(backend, 4)
        expand_log(backend, 8)
        plan = plan_of(backend, "job", f'{{"0": {seen}}}')
        JobWriter(backend, plan).must_append("c")
        assert values_in(backend, 0) == [*"abc"]
        stale = JobWriter(backend, plan_of(backend, "late", f'{{"0": {seen}}}'))
        assert not isinstance(stale.append(table_of("d")), Appended)
        assert values_in(backend, 0) == [*"abc"]

    def test_a_bound_from_before_is_no_bound_of_the_partitions_that_were_added(self, backend: Backend) -> None:
        """Another writer's records in the added partitions are not covered, although all named partitions match."""
        append_foreign(backend, 0, "a")
        bound = {str(each): backend.bounds(each).end_offset for each in range(self.partitions)}
        begun = pin_plan(backend, "begun", ExpectedOffsets.parse(json.dumps(bound)))
        for count in (4, 8):
            expand_log(backend, count)
            append_foreign(backend, 3, f"unseen-{count}")
            for compare in (BY_PARTITION, BY_KEY):
                with pytest.raises(LayoutChangedError, match=rf"name 3 partitions.* Now it has {count}, .* again"):
                    pin_plan(backend, "job", ExpectedOffsets.parse(json.dumps(bound)), compare=compare)
        assert (backend.plan("job"), backend.plan("begun")) == (None, begun)
        # A caller that names some or all of the added partitions defines the condition for all.
        for number, given in enumerate(({"0": bound["0"]}, {**bound, "4": 0}, bound | dict.fromkeys("34567"))):
            pin_plan(backend, f"job-{number}", ExpectedOffsets.parse(json.dumps(given)))

    @pytest.mark.parametrize("mode", ["end", "none"])
    def test_a_claim_from_before_appends_nothing_after(self, backend: Backend, mode: str) -> None:
        plan = plan_of(backend, "job", mode)
        backend.record_plan(plan)
        fresh, used = JobWriter(backend, plan), JobWriter(backend, plan, partition=1)
        used.must_append("a")
        with self.reopen(backend) as other:
            layout = expand_log(other, 5)
        changed = LayoutChanged(plan.layout_epoch, layout.epoch)
        assert fresh.append(table_of("b")) == changed
        assert used.append(table_of("b")) == changed
        # Also for an added partition, which is not part of the plan.
        assert [backend.claim(each, plan) for each in (0, 4)] == [changed, changed]
        require_all_below(backend, only_expansion(backend, 5))
        assert (values_in(backend, 0), values_in(backend, 1)) == ([], ["a"])

    @pytest.mark.parametrize("mode", ["end", "none"])
    def test_old_claim_of_a_completed_job_appends_nothing_after_an_expansion(
        self, backend: Backend, mode: str
    ) -> None:
        """A run with rows for the partition stalls, while another run without rows for it completes the job."""
        plan = pin_plan(backend, "job", ExpectedOffsets(mode))
        sleeper = JobWriter(backend, plan)
        with self.reopen(backend) as other:
            complete_job(other, plan, ())
            layout = expand_log(other, 5)
        assert sleeper.append(table_of("a")) == LayoutChanged(plan.layout_epoch, layout.epoch)
        require_all_below(backend, only_expansion(backend, 5))

    @pytest.mark.parametrize("mode", ["end", "none"])
    @pytest.mark.parametrize("step", STEPS[:2])
    def test_appends_of_an_old_plan_are_below_the_threshold(self, backend: Backend, step: str, mode: str) -> None:
        """The claim precedes the expansion, and the appends happen at a step of it. No new claim succeeds."""
        plan = plan_of(backend, "job", mode)
        backend.record_plan(plan)
        writer = JobWriter(backend, plan)
        writer.must_append("a")
        appended = ["a"]

        def meanwhile() -> None:
            if isinstance(writer.append(table_of("b")), Appended):
                appended.append("b")
            assert isinstance(backend.claim(1, plan), LayoutChanged)

        with self.reopen(backend) as other:
            faulty = FaultyLog(other, Fault(step, 1, When.AFTER, meanwhile))
            layout = expand_log(faulty, 5)
        assert writer.append(table_of("c")) == LayoutChanged(plan.layout_epoch, layout.epoch)
        assert values_in(backend, 0) == appended
        require_all_below(backend, only_expansion(backend, 5))
        assert appended == ["a"] or step == "begin_expansion"

    def test_job_of_the_old_layout_reports_its_rows(self, backend: Backend) -> None:
        rows = rows_of(7, 0, 1)
        done = run_job(backend, "complete", rows)
        crash_after_chunks(backend, "begun", rows, 1)
        expand_log(backend, 4)
        with raises(LayoutChangedError, job="complete"):
            run_job(backend, "complete", rows)
        with raises(LayoutChangedError, job="begun"):
            run_job(backend, "begun", rows)
        assert backend.completion("complete") == done
        assert sum(len(values_in(backend, each)) for each in range(4)) == 2 * 7 + 3

    def test_stream_continues_under_another_name_after_an_expansion(self, backend: Backend) -> None:
        run_batch(backend, 0, rows_of(2, 0, 1))
        expand_log(backend, 4)
        with raises(LayoutChangedError, job="stream"):
            run_batch(backend, 1, rows_of(2, 3))
        run_batch(backend, 1, rows_of(2, 3), job="stream-2")
        assert [values_in(backend, each) for each in range(4)] == [*rows_of(2, 0, 1).values(), [], rows_of(2, 3)[3]]

    def test_single_append_is_detected_after_an_expansion(self, backend: Backend) -> None:
        ask = partial(append_once, backend, 0, table_of("ab"), job="one", expected_offset=0)
        first = ask()
        backend.record_plan(plan_of(backend, "late"))
        expand_log(backend, 4)
        again = ask()
        assert isinstance(first, Appended)
        assert isinstance(again, Appended)
        assert (again.range, again.resolved) == (first.range, True)
        late = append_once(backend, 1, table_of("c"), job="late", expected_offset=0)
        assert isinstance(late, LayoutChanged)
        assert [values_in(backend, each) for each in range(4)] == [[*"ab"], [], [], []]

    def test_nothing_is_planned_while_a_log_is_expanded(self, backend: Backend) -> None:
        with pytest.raises(InjectedFaultError):
            expand_log(FaultyLog(backend, Fault("end_partition", 2, When.BEFORE)), 5)
        with pytest.raises(LayoutChangedError, match="from 3 to 5 partitions"):
            pin_plan(backend, "job", ExpectedOffsets("end"))
        assert backend.plan("job") is None
        expand_log(backend, 5)
        run_job(backend, "job", rows_of(4, 0, 4))
        assert values_in(backend, 4) == rows_of(4, 4)[4]

    @pytest.mark.parametrize("step", STEPS)
    def test_an_expansion_that_was_killed_anywhere_is_finished_by_the_same_call(
        self, new_backend: NewBackend, step: str
    ) -> None:
        for call in (1, self.partitions) if step == "end_partition" else (1,):
            with new_backend() as backend:
                backend.create(self.partitions)
                append_foreign(backend, 0, *"ab")
                with pytest.raises(InjectedFaultError):
                    expand_log(FaultyLog(backend, Fault(step, call, When.AFTER)), 5)
                if step != "finish_expansion":
                    self._require_pending(backend)
                with self.reopen(backend) as other, suppress(OptionError):
                    expand_log(other, 5)
                require_all_below(backend, only_expansion(backend, 5))
                append_foreign(backend, 0, "c")
                append_foreign(backend, 4, "x")
                assert (values_in(backend, 0), values_in(backend, 4)) == ([*"abc"], ["x"])

    def _require_pending(self, backend: Backend) -> None:
        """Readers use the old layout, and no plan can append, not even one for the current partitions."""
        layouts = backend.layouts()
        assert layouts.layout.partitions == self.partitions
        assert layouts.pending is not None
        assert isinstance(backend.claim(0, plan_of(backend, "early")), LayoutChanged)

    def test_begun_expansion_differs_from_one_to_another_count(self, backend: Backend) -> None:
        with pytest.raises(InjectedFaultError):
            expand_log(FaultyLog(backend, Fault("begin_expansion", 1, When.AFTER)), 5)
        with pytest.raises(LayoutChangedError, match="expanding the log to 5 partitions"):
            expand_log(backend, 6)
        assert [expand_log(backend, count).partitions for count in (5, 6)] == [5, 6]

    @pytest.mark.parametrize("step", ["layout", *STEPS])
    def test_of_two_at_once_the_slower_one_ends_well_too(self, backend: Backend, step: str) -> None:
        """Another process completes the expansion before any step of this one, and writers use the new layout."""
        append_foreign(backend, 0, *"ab")

        def the_other() -> None:
            with self.reopen(backend) as other:
                expand_log(other, 5)
                append_foreign(other, 0, "c")
                append_foreign(other, 4, "x")

        faulty = FaultyLog(backend, Fault(step, 1, When.BEFORE, the_other))
        if step == "layout":
            with pytest.raises(OptionError, match="can only grow"):
                expand_log(faulty, 5)
        else:
            assert expand_log(faulty, 5) == backend.layout()
        (end,) = {each.thresholds[0] for each in backend.layouts().expansions}
        assert end <= backend.bounds(0).end_offset - 1
        append_foreign(backend, 0, "d")
        assert (values_in(backend, 0), values_in(backend, 4)) == ([*"abcd"], ["x"])

    def test_concurrent_expansion_to_another_count_is_reported(self, backend: Backend) -> None:
        def the_other() -> None:
            with self.reopen(backend) as other:
                expand_log(other, 4)

        with pytest.raises(LayoutChangedError, match=r"has just expanded the log to 4 partitions\..* again"):
            expand_log(FaultyLog(backend, Fault("begin_expansion", 1, When.BEFORE, the_other)), 5)
        expand_log(backend, 5)

    def test_two_that_expand_at_the_same_time(self, new_backend: NewBackend) -> None:
        for counts in [(4, 4), (4, 6)] * (1 + self.rounds // 40):
            with new_backend() as backend:
                backend.create(2)
                with self.reopen(backend) as other:
                    ended = at_once(
                        *(partial(_expanded, log, to) for log, to in zip((backend, other), counts, strict=True))
                    )
                    done = backend.layout().partitions
                    assert done in counts
                    assert [each.partitions for each in backend.layouts().expansions] in ([done], [4, 6])
                    assert done in ended
                    void(append_foreign(other, done - 1, "x"))


def _expanded(log: Backend, partitions: int) -> int | None:
    """Expand a log and return the new count; None if another expansion took precedence."""
    try:
        return expand_log(log, partitions).partitions
    except (LayoutChangedError, OptionError):
        return None
