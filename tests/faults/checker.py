"""Read a log without Spark and report each deviation: each row once and in order, and a matching ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_cas import open_log
from spark_cas.core.digest import RunningDigest
from spark_cas.core.plan import Progress
from spark_cas.log.backend import Backend
from tests.faults.rows import Row, as_records


@dataclass(frozen=True)
class Held:
    """The expected rows of a job in a partition."""

    job: str
    rows: Sequence[Row]
    complete: bool = True


def require_complete(log: Path, job: str, rows: Mapping[int, Sequence[Row]]) -> None:
    """Check that the log holds exactly the rows of this job, and that the registry records the job as complete."""
    require(log, {partition: [Held(job, found)] for partition, found in rows.items()}, completed=[job])


def require_prefix(log: Path, job: str, rows: Mapping[int, Sequence[Row]]) -> int:
    """Check that each partition holds a prefix of these rows and nothing else. Return the total number of rows."""
    held = {partition: [recorded_prefix(log, partition, job, expected)] for partition, expected in rows.items()}
    require(log, held, completed=[])
    return sum(len(found[0].rows) for found in held.values())


def recorded_prefix(log: Path, partition: int, job: str, rows: Sequence[Row]) -> Held:
    """Return as many of these rows as the ledger records for the job in a partition."""
    with open_log(str(log)) as opened:
        progress = opened.progress(partition, job)
    count = progress.rows if progress else 0
    done = progress is not None and progress.complete
    assert not done or count == len(rows), f"partition {partition}: complete with {count} rows"
    return Held(job, rows[:count], complete=done)


def require(log: Path, held: Mapping[int, Sequence[Held]], completed: Sequence[str]) -> None:
    """Check that each partition holds exactly the rows of these jobs, one job after the other."""
    problems = findings(log, held, completed)
    assert not problems, "\n".join(problems)


def require_rows(log: Path, rows: Mapping[int, Sequence[Row]]) -> None:
    """Check that each partition holds exactly these rows in order. Aborted records may leave gaps in the offsets."""
    with open_log(str(log)) as opened:
        found = {
            partition: differences(_read(opened, partition)[0], expected) for partition, expected in rows.items()
        }
    assert not any(found.values()), found


def findings(log: Path, held: Mapping[int, Sequence[Held]], completed: Sequence[str]) -> list[str]:
    """Return all deviations of the log; an empty list if there are none."""
    problems: list[str] = []
    with open_log(str(log)) as opened:
        if opened.layout().partitions != len(held):
            problems.append(f"{opened.layout().partitions} partitions instead of {len(held)}")
        for partition, jobs in held.items():
            rows, found = _read(opened, partition)
            problems += [f"partition {partition}: {each}" for each in found]
            expected = [row for each in jobs for row in each.rows]
            problems += [f"partition {partition}: {each}" for each in differences(rows, expected)]
            problems += [f"partition {partition}: {each}" for each in _ledger(opened, partition, jobs)]
        for job in completed:
            problems += _completion(opened, job, held)
    return problems


def differences(rows: Sequence[Row], expected: Sequence[Row]) -> list[str]:
    """Describe how rows differ from the expected ones: missing, unexpected, duplicate, or in another order."""
    if list(rows) == list(expected):
        return []
    problems = []
    if len(rows) != len(expected):
        problems.append(f"{len(rows)} rows instead of {len(expected)}")
    missing, strange = set(expected) - set(rows), set(rows) - set(expected)
    if missing:
        problems.append(f"{len(missing)} rows are missing, such as {min(missing)}")
    if strange:
        problems.append(f"{len(strange)} rows are not of the input, such as {min(strange)}")
    if len(set(rows)) < len(rows):
        problems.append(f"{len(rows) - len(set(rows))} rows are there again")
    pairs = zip(rows, expected, strict=False)
    at = next((at for at, (row, other) in enumerate(pairs) if row != other), min(len(rows), len(expected)))
    return [*problems, f"the first difference is at row {at}"]


def _read(log: Backend, partition: int) -> tuple[list[Row], list[str]]:
    """Return the rows of a partition, and the gaps and overlaps of its offsets."""
    rows: list[Row] = []
    problems = []
    bounds = log.bounds(partition)
    following = 0
    for base_offset, records in log.read(partition, bounds.range):
        if base_offset != following:
            problems.append(f"records at offset {base_offset} follow those that end at {following}")
        following = base_offset + records.num_rows
        rows += zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True)
    if bounds.start_offset != 0 or bounds.end_offset != following:
        problems.append(f"its bounds are {bounds}, but its records end at {following}")
    return rows, problems


def _ledger(log: Backend, partition: int, jobs: Sequence[Held]) -> list[str]:
    problems = []
    base_offset = 0
    for each in jobs:
        found = log.progress(partition, each.job)
        end_offset = base_offset + len(each.rows)
        if not each.rows:
            if found is not None:
                problems.append(f"the ledger has an entry of job {each.job}, which has no rows in the partition")
        elif found is None:
            problems.append(f"the ledger has no entry of job {each.job}")
        else:
            expected = (len(each.rows), digest_of(each.rows), base_offset, end_offset, each.complete)
            if _of(found) != expected:
                problems.append(f"the ledger has {_of(found)} instead of {expected}")
        base_offset = end_offset
    return problems


def _completion(log: Backend, job: str, held: Mapping[int, Sequence[Held]]) -> list[str]:
    completion = log.completion(job)
    if completion is None:
        return [f"job {job} has no completion in the registry"]
    said = {each.progress.partition: each.progress.digest for each in completion.partitions}
    expected = {
        partition: digest_of(each.rows)
        for partition, jobs in held.items()
        for each in jobs
        if each.job == job and each.rows
    }
    return [] if said == expected else [f"the completion of job {job} names {said} instead of {expected}"]


def digest_of(rows: Sequence[Row]) -> str:
    digest = RunningDigest()
    digest.update(as_records(rows))
    return digest.hexdigest()


def _of(progress: Progress) -> tuple[int, str, int, int, bool]:
    return progress.rows, progress.digest, progress.base_offset, progress.end_offset, progress.complete


def files_of(log: Path) -> dict[str, bytes]:
    """Read all chunks, to detect later that a file was added or changed."""
    return {str(file.relative_to(log)): file.read_bytes() for file in log.glob("partition=*/*")}
