"""The local directory: acknowledged chunks are durable, files are complete or absent, nothing is outside the root."""

import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_cas.core.errors import FormatError, LogNotFoundError, OptionError, StorageError
from spark_cas.core.finding import Problem
from spark_cas.core.offsets import Bounds
from spark_cas.core.outcome import Appended, Unknown
from spark_cas.core.plan import Completion
from spark_cas.log import timing
from spark_cas.log.objects import ObjectLog, local, paths
from spark_cas.log.objects.local import LocalStore
from spark_cas.log.objects.store_replies import PutReply
from tests.objects import killed_writer
from tests.objects.flaky_store import FlakyStore
from tests.objects.places import local_log
from tests.support.writing import JobWriter, append_foreign, plan_of, table_of, values_in


@pytest.fixture
def root(tmp_path):
    return tmp_path / "deep" / "logs" / "flights"


@pytest.fixture
def log(root):
    log = local_log(root)
    log.create(1)
    return log


def staged(root):
    return list((root / paths.STAGING).iterdir())


class Recorded:
    """A recorder of the calls to the operating system, in order, each with its path."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.fail = {}
        self._paths = {}
        for name in ("open", "write", "fsync", "link"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        monkeypatch.setattr(Path, "mkdir", self._wrapped("mkdir", Path.mkdir))

    def _wrapped(self, name, real):
        def call(first, *args, **options):
            about = self._paths.get(first, first)
            if error := self.fail.get((name, str(about))):
                raise error
            result = real(first, *args, **options)
            if name == "open":
                self._paths[result] = first
            else:
                self.calls.append((name, str(args[0] if name == "link" else about)))
            return result

        return call

    def at(self, name, path):
        return self.calls.index((name, str(path)))


def test_files_and_folders_are_synced_before_created(root, monkeypatch):
    (root.parents[2]).mkdir(exist_ok=True)
    recorded = Recorded(monkeypatch)
    assert LocalStore(root).create("partition=00000/00000000000000000000.parquet", b"bytes") is PutReply.CREATED
    target = root / "partition=00000/00000000000000000000.parquet"
    linked = recorded.at("link", target)
    writes = [(at, path) for at, (name, path) in enumerate(recorded.calls) if name == "write"]
    assert [Path(path).parent for _, path in writes] == [root / paths.STAGING]
    assert writes[0][0] < recorded.calls.index(("fsync", writes[0][1])) < linked, "the bytes, then the name"
    assert recorded.calls.index(("fsync", str(target.parent)), linked) == len(recorded.calls) - 1, "then the folder"
    for folder in (target.parent, root, *root.parents[:2]):
        made = recorded.at("mkdir", folder)
        assert recorded.calls.index(("fsync", str(folder.parent)), made) < linked, f"{folder} in its parent folder"


def test_folders_that_another_process_made_are_synced_too(root, monkeypatch):
    """The other process may have died before its own sync, or may not have reached it yet."""
    (root / "partition=00000").mkdir(parents=True)
    recorded = Recorded(monkeypatch)
    folder = LocalStore(root)
    folder.create("partition=00000/a", b"")
    assert recorded.at("fsync", root) < recorded.at("link", root / "partition=00000/a")
    recorded.calls.clear()
    folder.create("partition=00000/b", b"")
    assert [name for name, _ in recorded.calls].count("fsync") == 2, "once is enough"


def test_existing_name_is_synced_before_it_is_reported(root, monkeypatch):
    LocalStore(root).create("x/a", b"first")
    recorded = Recorded(monkeypatch)
    assert LocalStore(root).create("x/a", b"second") is PutReply.ALREADY_EXISTS
    assert recorded.calls[-1] == ("fsync", str(root / "x"))
    assert (root / "x/a").read_bytes() == b"first"
    assert staged(root) == []


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_failure_before_the_link_leaves_nothing(log, root, monkeypatch, call):
    writer = JobWriter(log, plan_of(log, "job"))
    writer.must_append("a")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, lambda *_, **__: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(StorageError, match=r"^\[STORAGE\] .*disk is full"):
            writer.append(table_of("b"))
        assert staged(root) == []
        assert values_in(log, 0) == values_in(local_log(root), 0) == ["a"]
    assert writer.must_append("b").range.base_offset == 1


def test_a_name_that_did_not_reach_the_disk_is_not_acknowledged(log, root, monkeypatch):
    writer = JobWriter(log, plan_of(log, "job"))
    writer.must_append("a")
    with monkeypatch.context() as patch:
        Recorded(patch).fail["fsync", str(root / "partition=00000")] = OSError(5, "I/O error")
        outcome = writer.append(table_of("b"))
    assert isinstance(outcome, Unknown)
    assert "then run the same job again" in outcome.cause
    again = JobWriter(local_log(root), writer.claim.plan)
    assert again.claim.progress is not None
    assert again.claim.progress.rows == 2


def linked_but_not_synced(root, complete):
    """Append a chunk whose writer dies between the link and the sync of the folder."""
    log = local_log(root)
    plan = log.record_plan(plan_of(log, "job"))
    writer = JobWriter(log, plan)
    with pytest.MonkeyPatch.context() as patch:
        Recorded(patch).fail["fsync", str(root / "partition=00000")] = OSError(errno.EIO, "killed here")
        assert isinstance(writer.append(table_of("a"), complete=complete), Unknown)
    return plan


@pytest.mark.parametrize("complete", [False, True])
def test_unsynced_file_of_a_dead_writer_is_synced_before_use(log, root, monkeypatch, complete):
    plan = linked_but_not_synced(root, complete)
    folder = str(root / "partition=00000")
    for ask in (lambda fresh: fresh.claim(0, plan).progress, lambda fresh: fresh.progress(0, "job")):
        with monkeypatch.context() as patch:
            recorded = Recorded(patch)
            assert ask(local_log(root)).rows == 1
            assert ("fsync", folder) in recorded.calls
        with monkeypatch.context() as patch:
            Recorded(patch).fail["fsync", folder] = OSError(errno.EIO, "I/O error")
            with pytest.raises(StorageError, match=rf"^\[STORAGE\] syncing {folder}: "):
                ask(local_log(root))


def test_readers_sync_records_that_others_depend_on(log, root, monkeypatch):
    plan = log.record_plan(plan_of(log, "job"))
    assert isinstance(JobWriter(log, plan).append(table_of(""), complete=True), Appended)
    for folder, ask in {
        "_log/layout": lambda fresh: fresh.claim(0, plan),
        "_log/jobs/job": lambda fresh: fresh.claim(0, plan),
        "_log/ended/partition=00000/job": lambda fresh: fresh.claim(0, plan),
    }.items():
        with monkeypatch.context() as patch:
            recorded = Recorded(patch)
            assert ask(local_log(root)) is not None
            assert ("fsync", str(root / folder)) in recorded.calls


def test_file_is_synced_once_unless_it_was_replaced(log, root, monkeypatch):
    """If another process forgot the job and planned it again, this process has not synced the new plan."""
    plan = log.record_plan(plan_of(log, "job"))
    other = local_log(root)
    other.forget(plan)
    anew = other.record_plan(replace(plan, pinned_by="other"))
    synced = []
    for each in (plan, plan, anew, anew):
        with monkeypatch.context() as patch:
            recorded = Recorded(patch)
            log.claim(0, each)
            synced.append(("fsync", str(root / "_log/jobs/job")) in recorded.calls)
    assert synced == [True, False, True, False]


def test_a_name_is_free_only_once_its_folder_was_opened(log, root, monkeypatch):
    """The client of a network file system caches free names until the folder is opened."""
    log.bounds(0)
    opened = set()
    real_open, real_end_of = os.open, local._end_of

    def opening(path, *args, **options):
        opened.add(str(path))
        return real_open(path, *args, **options)

    def remembering(file, size):
        return real_end_of(file, size) if str(file.parent) in opened else None

    append_foreign(local_log(root), 0, "a", "b")
    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(local, "_end_of", remembering)
    assert log.bounds(0) == Bounds(0, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its rights and get them back")
def test_a_directory_without_rights_is_named_with_the_cause():
    denied = "permission denied. Give this user the right to, then run the same job again."
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "flights"
        Path(folder).chmod(0o755)
        log = local_log(root)
        log.create(1)
        plan = log.record_plan(plan_of(log, "job"))
        os.seteuid(65534)
        try:
            with pytest.raises(StorageError) as refused:
                local_log(root)
            assert str(refused.value) == f"[ACCESS_DENIED] opening {root}: {denied}"
            os.seteuid(0)
            for path in (root, *root.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            os.seteuid(65534)
            with pytest.raises(StorageError) as refused:
                local_log(root).claim(0, plan)
            assert str(refused.value) == f"[ACCESS_DENIED] writing {root}/{paths.PROBE}: {denied}"
        finally:
            os.seteuid(0)


def run(root, point, **options):
    command = [sys.executable, "-m", "tests.objects.killed_writer", str(root), "{}", point]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize(("point", "chunks"), [("before the link", 2), ("before the unlink", 3)])
def test_a_writer_killed_beside_the_link_leaves_a_chunk_whole_or_absent(log, root, point, chunks):
    plan = log.record_plan(plan_of(log, "job"))
    assert run(root, point).returncode == -signal.SIGKILL
    assert len(staged(root)) == 1
    kept = [f"{chunk}{end}" for chunk in range(chunks) for end in ("", "'")]
    fresh = local_log(root)
    assert values_in(fresh, 0) == kept
    assert fresh.bounds(0) == Bounds(0, 2 * chunks)
    writer = JobWriter(fresh, plan)
    assert writer.claim.progress is not None
    assert writer.claim.progress.rows == len(kept)
    writer.must_append("on")
    assert values_in(log, 0) == [*kept, "on"]
    if point == "before the unlink":
        assert [path.stat().st_nlink for path in staged(root)] == [2]
    age(staged(root)[0])
    append_foreign(local_log(root), 0, "later")
    assert staged(root) == []
    assert values_in(log, 0) == [*kept, "on", "later"]


def test_a_full_disk_is_an_error_and_the_retry_works(log, root):
    log.record_plan(plan_of(log, "job"))
    ended = run(root, "full")
    assert ended.returncode == 0, ended.stderr
    path = root / paths.chunk(0, 4)
    assert ended.stdout.startswith(f"[STORAGE] writing {path}: the file size limit is reached. Raise it")
    assert staged(root) == []
    expected = [f"{chunk}{end}" for chunk in range(killed_writer.CHUNKS) for end in ("", "'")]
    assert values_in(log, 0) == expected


def age(path):
    long_ago = time.time() - timing.current().straggler_age - 60
    os.utime(path, (long_ago, long_ago))


def test_only_old_staged_files_are_removed(log, root):
    old, new = (root / paths.STAGING / name for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half a chu")
    age(old)
    append_foreign(local_log(root), 0, "a")
    assert staged(root) == [new]


def test_a_writer_whose_staged_file_was_swept_fails_cleanly(log, root, monkeypatch):
    writer = JobWriter(log, plan_of(log, "job"))
    link = os.link

    def slow(staged, target, **options):
        Path(staged).unlink()
        link(staged, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", slow)
        with pytest.raises(StorageError):
            writer.append(table_of("a"))
    assert values_in(log, 0) == []
    writer.must_append("a")


@pytest.mark.parametrize(
    "folder", ["_log", "_log/jobs", "_log/jobs/job", "_log/hints", "_log/staging", "partition=00000"]
)
def test_links_in_the_log_are_refused_and_nothing_is_written_through_them(root, tmp_path, folder):
    outside = tmp_path / "outside"
    log = local_log(root)
    log.create(1)
    plan = plan_of(log, "job")
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder).rename(outside)
    (root / folder).symlink_to(outside)
    before = sorted(outside.rglob("*"))

    def write():
        fresh = local_log(root)
        fresh.record_plan(plan)
        JobWriter(fresh, plan).must_append("a")

    with pytest.raises(FormatError, match=r"^\[FORMAT\] .*symbolic link"):
        write()
    assert sorted(outside.rglob("*")) == before


def test_a_root_reached_through_a_link_is_fine(root, tmp_path):
    root.mkdir(parents=True)
    (tmp_path / "link").symlink_to(root)
    log = local_log(tmp_path / "link")
    log.create(1)
    append_foreign(log, 0, "a")
    assert values_in(local_log(root), 0) == ["a"]


@pytest.mark.parametrize(
    "job", ["..", ".", "", "a/b", "../../../../x", "/abs", "a\\b", "a\0b", "%2e%2e", "a\nb", "J" * 201]
)
def test_job_names_cannot_lead_out_of_the_root(log, root, tmp_path, job):
    before = sorted(tmp_path.rglob("*"))
    plan = plan_of(log, job)
    for ask in (
        lambda: log.record_plan(plan),
        lambda: log.plan(job),
        lambda: log.completion(job),
        lambda: log.progress(0, job),
        lambda: log.record_completion(Completion(job, plan.log_id, 0, (), 0)),
        lambda: JobWriter(log, plan).append(table_of("a"), complete=True),
    ):
        with pytest.raises(OptionError, match="job name"):
            ask()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/no/such/root/x"])
def test_the_folder_itself_refuses_paths_that_lead_out(root, path):
    with pytest.raises(ValueError, match="out of"):
        LocalStore(root).create(path, b"")
    with pytest.raises(ValueError, match="out of"):
        LocalStore(root).overwrite(path, b"")


def test_odd_characters_in_the_path_of_the_root(tmp_path):
    root = tmp_path / "a b%2e%2e#?ü" / "flights"
    log = local_log(root)
    log.create(1)
    append_foreign(log, 0, "a")
    assert values_in(local_log(root), 0) == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [root.parent.name]


def test_new_files_are_private_to_the_user(log, root):
    append_foreign(log, 0, "a")
    for path in (root, *root.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_listing_has_only_files_in_order(root):
    store = LocalStore(root)
    assert store.below("a") == store.folders("") == []
    for path in ("a/2", "a/1", "a/b/3", "c"):
        store.overwrite(path, b"")
    (root / "a" / "empty" / "within").mkdir(parents=True)
    (root / "no file below").mkdir()
    (root / "a" / "elsewhere").symlink_to(root / "_log")
    assert store.below("a") == ["a/1", "a/2", "a/b/3", "a/elsewhere"]
    assert store.below("a", "a/1") == ["a/2", "a/b/3", "a/elsewhere"]
    assert store.below("a", "a/z") == store.below("c") == []
    assert store.folders("") == ["a", "c"]


def test_a_read_holds_one_chunk_and_in_arrows_memory(log):
    """Other allocators keep freed memory: each thread of a reading client would end up with memory for a chunk."""
    for _ in range(3):
        append_foreign(log, 0, os.urandom(500_000).hex())
    size = len(LocalStore(Path(log.spec.at())).get(paths.chunk(0, 0)) or b"")
    gc.collect()
    before = pa.total_allocated_bytes()
    store, held_before, held = FlakyStore(LocalStore(Path(log.spec.at()))), [], []
    store.before["get"] = lambda path: held_before.append(pa.total_allocated_bytes() - before)
    reader = ObjectLog(log.spec, store)
    for _, records in reader.read(0, reader.bounds(0).range, ()):
        held.append(pa.total_allocated_bytes() - before)
        del records
    # Allow half a chunk in either direction, because objects of earlier tests may be freed meanwhile.
    assert all(size / 2 < each < 3 * size / 2 for each in held), (size, held)
    assert len(held) == 3
    assert max(held_before) < size / 2, "a chunk is freed before the next one is read"


def test_looking_for_a_log_makes_nothing(tmp_path):
    log = local_log(tmp_path / "nowhere" / "flights")
    with pytest.raises(LogNotFoundError):
        log.layout()
    assert log.jobs() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_was_removed_under_its_writer_takes_no_rows(log, root):
    writer = JobWriter(log, plan_of(log, "job"))
    writer.must_append("a")
    root.rename(root.with_name("away"))
    with pytest.raises(StorageError):
        writer.append(table_of("b"))
    assert not root.exists()


def test_link_with_a_lost_reply_is_detected(log, tmp_path, monkeypatch):
    """A network file system may time out after it has created the link."""
    writer = JobWriter(log, plan_of(log, "job"))
    link = os.link

    def made_but_not_answered(*args, **kwargs):
        link(*args, **kwargs)
        raise TimeoutError(errno.ETIMEDOUT, "timed out")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", made_but_not_answered)
        assert LocalStore(tmp_path).create("folder/file", b"data") is PutReply.UNCLEAR
        outcome = writer.append(table_of("a"))
    assert isinstance(outcome, Appended)
    assert outcome.resolved
    assert values_in(log, 0) == ["a"]


def failing(number):
    def fail(*_args, **_options):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_reported_immediately(tmp_path, monkeypatch, number):
    """Different file systems report it by different error numbers."""
    monkeypatch.setattr(os, "link", failing(number))
    with pytest.raises(StorageError, match="hard links"):
        LocalStore(tmp_path).create("folder/file", b"data")


def test_a_log_on_a_read_only_file_system_can_be_examined(log, root, monkeypatch):
    log.preflight()
    monkeypatch.setattr(local, "_write", failing(errno.EROFS))
    assert [each.problem for each in local_log(root).findings()] == [Problem.STORE_UNPROBED]
