"""Lost, moved or replaced files: reads raise an error that names the file, and never return fewer rows."""

import shutil

import pytest

from spark_cas.core.errors import ChunkDamagedError, StorageError
from spark_cas.core.load_locks import LoadLocks
from spark_cas.core.offsets import Bounds, OffsetRange
from spark_cas.core.outcome import Truncated
from spark_cas.log.objects import ObjectLog, paths
from spark_cas.log.spec import LogSpec
from tests.objects.places import flaky_log, local_log, reopened
from tests.support.writing import JobWriter, append_foreign, claim_of, plan_of, table_of, values_in

CHUNKS = 12


@pytest.fixture
def root(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def log(root):
    """Twelve chunks of two rows by one job, so that the last hint is four chunks from the end."""
    log = local_log(root)
    log.create(2)
    plan = plan_of(log, "job", "none")
    log.record_plan(plan)
    writer = JobWriter(log, plan)
    for chunk in range(CHUNKS):
        writer.must_append(f"{chunk}", f"{chunk}'")
    return log


def file_of(root, chunk):
    return root / paths.chunk(0, 2 * chunk)


def everything(log):
    return values_in(log, 0)


@pytest.mark.parametrize("chunk", range(CHUNKS - 1))
@pytest.mark.parametrize("hints", [True, False])
def test_a_lost_file_is_named_and_nothing_is_silently_short(log, root, chunk, hints):
    file_of(root, chunk).unlink()
    if not hints:
        shutil.rmtree(root / "_log/hints")
    for ask in (
        everything,
        lambda fresh: list(fresh.read(0, OffsetRange(2 * chunk, 2 * chunk + 1))),
        lambda fresh: values_in(log, 0),
    ):
        with pytest.raises(ChunkDamagedError, match=rf"^\[CHUNK_DAMAGED\] {paths.chunk(0, 2 * chunk)}"):
            ask(local_log(root))


@pytest.mark.parametrize("chunk", range(CHUNKS - 1))
def test_a_lost_file_hides_no_progress(log, root, chunk):
    """A writer without expected offsets would append its own rows twice if it missed them."""
    expected = claim_of(log, 0, log.plan("job")).progress
    file_of(root, chunk).unlink()
    try:
        assert claim_of(local_log(root), 0, log.plan("job")).progress == expected
    except ChunkDamagedError as error:
        assert paths.chunk(0, 2 * chunk) in error.message  # noqa: PT017 -- either answer is right


def test_loss_of_the_newest_file_is_reported_to_its_reader(log, root):
    claim = claim_of(log, 0, plan_of(log, "late"))
    chunk = JobWriter(log, plan_of(log, "late")).chunk(table_of("x"))
    file_of(root, CHUNKS - 1).unlink()
    assert local_log(root).append(claim, chunk) == Truncated(2 * CHUNKS, 2 * CHUNKS - 2)


def test_a_listing_that_shows_the_second_of_two_new_chunks_alone_is_no_damage(monkeypatch):
    """A directory listing that runs during appends may contain any subset of the new names."""
    log, store = flaky_log()
    JobWriter(log, plan_of(log, "job")).must_append("a")  # this also leaves a hint
    fresh = ObjectLog(log.spec, store)
    below = store.inner.below

    def meanwhile(prefix, after=None):
        if prefix == paths.partition(0):
            for value in "bc":
                append_foreign(reopened(log), 0, value)
        return [path for path in below(prefix, after) if path != paths.chunk(0, 1)]

    monkeypatch.setattr(store.inner, "below", meanwhile)
    assert fresh.bounds(0) == Bounds(0, 1)
    monkeypatch.undo()
    assert values_in(fresh, 0) == ["a", "b", "c"]


def test_two_files_changed_places(log, root):
    one, two = file_of(root, 3), file_of(root, 5)
    one.rename(root / "other")
    two.rename(one)
    (root / "other").rename(two)
    for chunk in (3, 5):
        with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 2 * chunk)):
            list(local_log(root).read(0, OffsetRange(2 * chunk, 2 * chunk + 2)))
    with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 6)):
        everything(local_log(root))


def test_a_file_of_another_partition(log, root):
    append_foreign(log, 1, "x", "y")
    shutil.copy(root / paths.chunk(1, 0), file_of(root, 0))
    with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 0)):
        everything(local_log(root))


@pytest.mark.parametrize("chunk", [0, 4, CHUNKS - 1])
def test_a_file_of_another_log(log, root, tmp_path, chunk):
    other = local_log(tmp_path / "other")
    other.create(2)
    writer = JobWriter(other, plan_of(other, "job"))
    for value in range(CHUNKS):
        writer.must_append(f"{value}", f"{value}'")
    shutil.copy(file_of(tmp_path / "other", chunk), file_of(root, chunk))
    with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 2 * chunk)):
        everything(local_log(root))


def test_a_valid_chunk_of_this_very_log_in_the_place_of_another(log, root, tmp_path):
    """A copy of the log that diverged wrote this chunk, so only the chain reveals it."""
    shutil.copytree(root, tmp_path / "copy")
    copy = local_log(tmp_path / "copy")
    file_of(tmp_path / "copy", CHUNKS - 1).unlink()
    JobWriter(copy, plan_of(copy, "fork")).must_append("p", "q")
    append_foreign(log, 0, "r", "s")
    shutil.copy(file_of(tmp_path / "copy", CHUNKS - 1), file_of(root, CHUNKS - 1))
    with pytest.raises(ChunkDamagedError, match=rf"{paths.partition(0)}/"):
        everything(local_log(root))


@pytest.mark.parametrize("chunk", [0, 4, CHUNKS - 1])
@pytest.mark.parametrize("damage", ["flip", "tear", "empty"])
def test_damaged_bytes_give_no_rows_of_their_chunk(log, root, chunk, damage):
    path = file_of(root, chunk)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[20] ^= 1
    path.write_bytes({"flip": data, "tear": data[:-100], "empty": b""}[damage])
    given = []
    with pytest.raises(ChunkDamagedError, match=paths.chunk(0, 2 * chunk)):
        given.extend(log.read(0, OffsetRange(0, 2 * CHUNKS)))
    assert sum(records.num_rows for _, records in given) <= 2 * chunk
    assert all(first < 2 * chunk for first, _ in given)


def test_trimming_is_the_way_past_damage(log, root):
    file_of(root, 2).write_bytes(b"torn")
    file_of(root, 3).unlink()
    fresh = local_log(root)
    with pytest.raises(ChunkDamagedError):
        everything(fresh)
    assert fresh.trim(0, 8).start_offset == 8
    assert everything(local_log(root))[0] == "4"


@pytest.mark.parametrize("base", range(1, 5))
def test_trim_removes_damage_after_the_hint(tmp_path, base):
    root = tmp_path / "flights"
    log = local_log(root)
    log.create(1)
    writer = JobWriter(log, plan_of(log, "job"))
    for value in "abcdef":  # the hint names the first chunk
        writer.must_append(value)
    (root / paths.chunk(0, base)).write_bytes(b"torn")
    assert local_log(root).trim(0, 5) == Bounds(5, 6)
    assert values_in(local_log(root), 0) == ["f"]


def test_load_locks_that_are_listed_and_missing_are_an_error_after_the_deadline(root):
    place = root / paths.load_locks(1)
    with ObjectLog(LogSpec.parse(str(root)).with_options({"retry_timeout": "1s"})) as log:
        log.create(1)
        place.parent.mkdir(parents=True)
        place.symlink_to(root / "nothing")
        with pytest.raises(StorageError, match=f"{place.name}.*had no such object"):
            log.load_locks()
        place.unlink()
        assert log.load_locks() == LoadLocks()
