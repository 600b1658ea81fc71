"""The partitioner of a log: recorded once, and the same for all writes and for each run of a job."""

import pytest

from spark_cas.core.errors import ConflictError, JobMismatchError, OptionError, TruncatedError
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.core.partitioner import DEFAULT_PARTITIONER, Placement
from spark_cas.log.backend import Backend
from spark_cas.log.expanding import expand_log
from spark_cas.log.load.planning import pin_plan
from tests.contract.base import ContractBase, NewBackend, at_once

NONE = ExpectedOffsets("none")
CRC32, MURMUR2 = (Placement(each, named=True) for each in ("crc32", "murmur2"))
UNNAMED = Placement("murmur2", named=False)


class PlaceContract(ContractBase):
    """Recording of the partitioner by a backend."""

    def test_a_log_without_a_named_partitioner_has_the_default(self, backend: Backend) -> None:
        pin_plan(backend, "job", NONE, placement=UNNAMED)
        assert backend.layouts().partitioner in (None, DEFAULT_PARTITIONER)
        assert pin_plan(backend, "job", NONE, placement=UNNAMED).partitioner == DEFAULT_PARTITIONER

    def test_the_first_plan_records_a_named_partitioner(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(2, "crc32")
            pin_plan(log, "first", NONE, placement=CRC32)
            assert log.layouts().partitioner == "crc32"
            with self.reopen(log) as other:
                assert other.layouts().partitioner == "crc32"
                assert other.record_partitioner("murmur2") == "crc32"
                for job, placement in (("named", MURMUR2), ("unnamed", UNNAMED)):
                    with pytest.raises(OptionError):
                        pin_plan(other, job, NONE, placement=placement)
                    assert other.plan(job) is None
                assert pin_plan(other, "second", NONE, placement=CRC32).partitioner == "crc32"

    def test_a_refused_plan_records_no_partitioner(self, backend: Backend) -> None:
        before = backend.layouts().partitioner
        with pytest.raises((ConflictError, TruncatedError)):
            pin_plan(backend, "job", ExpectedOffsets.parse('{"0": 7}'), placement=MURMUR2)
        assert backend.layouts().partitioner == before

    def test_a_recorded_partitioner_outlives_an_expansion(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(1, "crc32")
            pin_plan(log, "first", NONE, placement=CRC32)
            layout = expand_log(log, 3)
            with self.reopen(log) as other:
                assert other.layouts().partitioner == "crc32"
                assert other.layout() == layout

    def test_a_job_keeps_the_partitioner_that_it_was_planned_with(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(2, "crc32")
            pin_plan(log, "job", NONE, placement=CRC32)
            with pytest.raises(JobMismatchError):
                pin_plan(log, "job", NONE, placement=UNNAMED)
            # If the caller assigned the partitions, the partitioner is unknown.
            assert pin_plan(log, "job", NONE).partitioner == "crc32"

    def test_of_plans_that_name_different_partitioners_at_once_one_is_recorded(self, new_backend: NewBackend) -> None:
        with new_backend() as log:
            log.create(2)
            with self.reopen(log) as other:
                at_once(
                    lambda: _planned(log, "one", MURMUR2),
                    lambda: _planned(other, "other", CRC32),
                )
            recorded = log.layouts().partitioner
            jobs = [job for job in ("one", "other") if log.plan(job)]
            assert jobs == (["one"] if recorded == "murmur2" else ["other"])


def _planned(log: Backend, job: str, placement: Placement) -> None:
    try:
        pin_plan(log, job, NONE, placement=placement)
    except OptionError:
        assert log.plan(job) is None
