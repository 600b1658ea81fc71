"""Where things lie below the root of a log. Zero-padded numbers make the order of names the order of the log."""

from spark_cas.core.names import check_name

LOG = "_log"
PROBE = "_log/probe"
LAYOUTS = "_log/layout"
JOBS = "_log/jobs"
STAGING = "_log/staging"
GRANTS = "_log/grants"
GROUPS = "_log/groups"
CANCELLED = "_log/cancelled"


def layout(epoch: int) -> str:
    """The layout of an epoch."""
    return f"{LAYOUTS}/{epoch:020d}.json"


def intent(epoch: int) -> str:
    """The expansion that leads to an epoch, as it was begun: before its layout in the order of names."""
    return f"{LAYOUTS}/{epoch:020d}.begun.json"


def is_intent(path: str) -> bool:
    """Whether this is the path of an expansion that was begun, and not of a layout."""
    return path.endswith(".begun.json")


def partition(number: int) -> str:
    """The chunks of a partition, named so that any engine reads the root as one table."""
    return f"partition={number:05d}"


def chunk(number: int, base_offset: int) -> str:
    """The chunk of a partition that begins at an offset."""
    return f"{partition(number)}/{base_offset:020d}.parquet"


def base_offset(path: str) -> int | None:
    """The offset at which the chunk of this path begins; None when the path is no chunk's."""
    name = path.rpartition("/")[2]
    stem, _, suffix = name.partition(".")
    return int(stem) if suffix == "parquet" and stem.isdecimal() and stem.isascii() else None


def starts(number: int) -> str:
    """The start offsets that a partition was given by trimming; the highest holds."""
    return f"_log/start/{partition(number)}"


def start(number: int, offset: int) -> str:
    """One start offset of a partition."""
    return f"{starts(number)}/{offset:020d}.json"


def end_hint(number: int) -> str:
    """Names a chunk near the end of a partition. Overwritten, never trusted."""
    return f"_log/hints/{partition(number)}.json"


def job_hint(job: str, number: int) -> str:
    """Names a chunk of a job near its newest in a partition. Overwritten, never trusted."""
    return f"_log/hints/{partition(number)}/{_checked(job)}.json"


def plan(job: str) -> str:
    """The first plan of a job."""
    return f"{JOBS}/{_checked(job)}/plan.json"


def planned_job(path: str) -> str | None:
    """The job whose plan this path is; None when it is no plan's."""
    folder, _, name = path.rpartition("/")
    return folder.rpartition("/")[2] if name == "plan.json" else None


def completion(job: str) -> str:
    """What a job was completed with."""
    return f"{JOBS}/{_checked(job)}/complete.json"


def grants(number: int) -> str:
    """The grants of the log as they were changed for the so many-th time; the newest hold."""
    return f"{GRANTS}/{number:020d}.json"


def grants_number(path: str) -> int | None:
    """How often the grants had been changed by those of this path; None when it is no such path."""
    stem, _, suffix = path.rpartition("/")[2].partition(".")
    return int(stem) if suffix == "json" and stem.isdecimal() and stem.isascii() else None


def outcome(group: str) -> str:
    """What was decided of a group. Kept for as long as the log is, for its chunks mean nothing without."""
    job, _, run = group.partition("/")
    return f"{GROUPS}/{check_name(job, 'the job name')}/{check_name(run, 'the name of a group')}.json"


def cancelled(run: str) -> str:
    """The rejection that cancelled a run. The driver removes it when the run ends."""
    return f"{CANCELLED}/{check_name(run, 'the name of a run')}.json"


def input_list(name: str) -> str:
    """The input list of a bulk load, by `spark_cas.core.plan.input_entry`."""
    job, _, digest = name.partition("/")
    return f"{JOBS}/{_checked(job)}/input-{check_name(digest, 'the digest of an input list')}.json"


def closed(job: str, pinned_by: str, number: int) -> str:
    """The progress with which a job was closed in a partition after its last chunk, under the plan of ``pinned_by``.

    A job of this name that was forgotten had another plan, and whoever slept meanwhile closes that.
    """
    return f"_log/ended/{partition(number)}/{_checked(job)}/{pinned_by}.json"


def _checked(job: str) -> str:
    """A job's name, once it is certain that it leads nowhere else. OptionError when it might."""
    return check_name(job, "the job name")
