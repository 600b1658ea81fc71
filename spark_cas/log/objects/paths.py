"""Paths below the root of a log. Numbers have leading zeros, so sorting by name sorts by number."""

from spark_cas.core.check_name import check_name
from spark_cas.log.protocol import EntryKind

LOG = "_log"
PROBE = "_log/probe"
LAYOUTS = "_log/layout"
JOBS = "_log/jobs"
STAGING = "_log/staging"
LOAD_LOCKS = "_log/grants"
GROUPS = "_log/groups"
CANCELLED = "_log/cancelled"


def layout(epoch: int) -> str:
    """Return the path of the layout of an epoch."""
    return f"{LAYOUTS}/{epoch:020d}.json"


def intent(epoch: int) -> str:
    """Return the path of the expansion to an epoch. It sorts before the layout of that epoch."""
    return f"{LAYOUTS}/{epoch:020d}.begun.json"


def is_intent(path: str) -> bool:
    """Return whether a path is that of an expansion and not that of a layout."""
    return path.endswith(".begun.json")


def partition(number: int) -> str:
    """Return the folder of a partition. Engines that support Hive partitions read the root as one table."""
    return f"partition={number:05d}"


def chunk(number: int, base_offset: int) -> str:
    """Return the path of the chunk that begins at an offset."""
    return f"{partition(number)}/{base_offset:020d}.parquet"


def base_offset(path: str) -> int | None:
    """Return the base offset of the chunk at this path; None if the path is not that of a chunk."""
    return _number(path, "parquet")


def starts(number: int) -> str:
    """Return the folder of the start offsets that trimming recorded. The highest one is valid."""
    return f"_log/start/{partition(number)}"


def start(number: int, offset: int) -> str:
    """Return the path of a start offset."""
    return f"{starts(number)}/{offset:020d}.json"


def end_hint(number: int) -> str:
    """Return the path of a hint that names a chunk near the end of a partition. It may be an older one."""
    return f"_log/hints/{partition(number)}.json"


def job_hint(job: str, number: int) -> str:
    """Return the path of a hint that names a chunk near a job's newest in a partition. It may be an older one."""
    return f"_log/hints/{partition(number)}/{_checked(job)}.json"


def entry(kind: EntryKind, name: str) -> str:
    """Return the path of an entry of the registry.

    An outcome is kept as long as the log, because the chunks of its group depend on it.
    """
    first, _, second = name.partition("/")
    match kind:
        case "plan":
            return f"{JOBS}/{_checked(name)}/plan.json"
        case "completion":
            return f"{JOBS}/{_checked(name)}/complete.json"
        case "input":
            return f"{JOBS}/{_checked(first)}/input-{check_name(second, 'the digest of an input list')}.json"
        case "outcome":
            return f"{GROUPS}/{_checked(first)}/{check_name(second, 'the name of a group')}.json"
        case "cancelled":
            return f"{CANCELLED}/{check_name(name, 'the name of a run')}.json"


def planned_job(path: str) -> str | None:
    """Return the job whose plan has this path; None if the path is not that of a plan."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2] if name == "plan.json" else None


def load_locks(number: int) -> str:
    """Return the path of the locks with this number. The highest number is valid."""
    return f"{LOAD_LOCKS}/{number:020d}.json"


def load_locks_number(path: str) -> int | None:
    """Return the number of the locks at this path; None if the path is not that of locks."""
    return _number(path, "json")


def closed(job: str, pinned_by: str, number: int) -> str:
    """Return the path of the progress with which a job ended in a partition without a further chunk.

    The path includes the plan (``pinned_by``). If the job was forgotten and planned again, a late task of the
    first plan cannot end the second.
    """
    return f"_log/ended/{partition(number)}/{_checked(job)}/{pinned_by}.json"


def _checked(job: str) -> str:
    """Return a job's name if it is a safe path component. Raises OptionError if it is not."""
    return check_name(job, "the job name")


def _number(path: str, expected: str) -> int | None:
    stem, _, suffix = path.rpartition("/")[2].partition(".")
    return int(stem) if suffix == expected and stem.isdecimal() and stem.isascii() else None
