"""The progress of a bulk load that waits for the grant of another load."""

from spark_cas import open_log
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.load.granting import Applicant, give_back, obtain_grant
from spark_cas.log.open import parse_address
from spark_cas.programs import load_watch
from spark_cas.programs.load_watch import LedgerWatch
from spark_cas.testing.loads import rows_of, run_job

END = ExpectedOffsets("end")


def test_a_load_says_for_whom_it_waits_until_it_has_a_grant_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(load_watch, "_QUIET_SECONDS", 0)
    spec = parse_address(str(tmp_path / "flights"))
    with open_log(spec) as log:
        log.create(2)
        first = obtain_grant(log, Applicant("first", "run"), END)
        watch = LedgerWatch(spec, "second")
        watch._answered += 3600  # simulate an immediate response
        assert watch.rows() == 0
        watch._answered += 3600
        assert watch.waiting() == "waiting for job first, which is at work, since 0 s"
        give_back(log, first)
        obtain_grant(log, Applicant("second", "run"), END)
        assert watch.rows() == 0
        watch._answered += 3600
        assert watch.waiting() is None


def test_a_load_that_has_rows_waits_for_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(load_watch, "_QUIET_SECONDS", 0)
    spec = parse_address(str(tmp_path / "flights"))
    with open_log(spec) as log:
        log.create(2)
        obtain_grant(log, Applicant("first", "run"), END)
        run_job(log, "second", rows_of(3, 0))
        watch = LedgerWatch(spec, "second")
        assert [watch.rows() for _ in range(2)] == [3, 3]
        watch._ahead = None
        assert watch.rows() == 3
        assert watch._ahead is None
