"""Find the problems of a log: its brokers or store, transactions, expansions, load locks and jobs.

Nothing here changes the log.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from spark_cas.core.errors import ConditionalLogError, ErrorKind, OptionError, StorageError
from spark_cas.core.finding import Finding, OpenTransaction, Problem, Severity
from spark_cas.core.load_locks import LoadLock
from spark_cas.log import clock, timing
from spark_cas.log.backend import Backend
from spark_cas.log.jobs import JobState, State, job_states
from spark_cas.log.load.locking import is_process_running
from spark_cas.log.timing import LONGEST_TRANSACTION_MS

_PROCESS_STATES = {
    True: "Its process runs",
    False: "Its process has ended",
    None: "Its process is on another host, or not known",
}
_RESTORE = "restore the named file or entry from a backup, or use the version of spark_cas that wrote it"
_FIXES: dict[str, str] = {
    ErrorKind.ACCESS_DENIED: "grant the named right, then run spark-cas doctor LOG",
    ErrorKind.CHUNK_DAMAGED: _RESTORE,
    ErrorKind.FORMAT: _RESTORE,
}
_SOON_SHARE = 0.5
"""A ledger entry expires soon after this share of its lifetime."""


def examine(log: Backend, now_ms: int) -> list[Finding]:
    """Return the problems of a log, the most severe ones first.

    A part that cannot be read is a finding too. Give it a log with a short retry timeout: each part waits for it at
    most once for each job.
    """
    log.layout()
    parts: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("the settings", log.findings),
        ("the open transactions", lambda: _of_transactions(log, now_ms)),
        ("the expansions", lambda: _of_expansion(log)),
        ("the ends of the partitions", lambda: _of_bounds(log)),
        ("the load locks", lambda: _of_locks(log, now_ms)),
        ("the jobs", lambda: _of_jobs(log, now_ms)),
    )
    result: list[Finding] = []
    for name, part in parts:
        try:
            result += part()
        except ConditionalLogError as error:
            result.append(_unreadable(log, name, error))
    own = {each.subject for each in result if "transactional_id" not in each.details}
    opened = {f"job {each.details['load']}" for each in result if each.details.get("load") is not None}
    # The finding on the transaction of an atomic load replaces that on the job.
    result = [
        each
        for each in result
        if not (each.problem is Problem.UNDECIDED_LOAD and each.subject in own and each.subject in opened)
    ]
    order = [*Severity]
    return sorted(result, key=lambda each: -order.index(each.severity))


def exact_transaction(
    transactions: Iterable[OpenTransaction], topic: str, partition: int, producer_id: int, epoch: int
) -> OpenTransaction:
    """Return the open transaction of exactly this producer in a partition. Raises OptionError if there is none."""
    here = [each for each in transactions if each.holds(topic, partition)]
    for each in here:
        if (each.producer_id, each.producer_epoch) == (producer_id, epoch):
            return each
    others = ", ".join(f"producer id {each.producer_id}, epoch {each.producer_epoch}" for each in here) or "none"
    raise OptionError(
        f"producer id {producer_id} with epoch {epoch} has no open transaction in partition {partition} of "
        f"{topic}. Open there: {others}. Nothing was changed."
    )


def _of_transactions(log: Backend, now_ms: int) -> Iterator[Finding]:
    try:
        transactions = log.open_transactions()
    except (OptionError, StorageError) as error:
        # Also if kafka-python is missing: a monitor would be green, and check nothing.
        fix = "grant Read on the topic and Describe on all transactional ids, and start all brokers"
        if isinstance(error, OptionError):
            fix = "correct the named option, or pip install 'spark-cas[doctor]', or use kafka-transactions.sh"
        yield Finding(Problem.TRANSACTIONS_UNREADABLE, Severity.WARNING, f"log {log.topic}", error.message, fix)
        return
    for each in transactions:
        yield transaction_finding(log.topic, each, now_ms)


def transaction_finding(topic: str, transaction: OpenTransaction, now_ms: int) -> Finding:
    """Return the finding for an open transaction in a log or its registry."""
    age_ms = None if transaction.since_ms is None else max(0, now_ms - transaction.since_ms)
    places = [(each.topic, each.partition) for each in transaction.partitions if each.start_offset is not None]
    held = ", ".join(f"{name}-{partition}" for name, partition in places[:8]) or "none yet"
    more = f" and {len(places) - 8} more" if len(places) > 8 else ""  # noqa: PLR2004 - as above
    name = f" ({transaction.transactional_id})" if transaction.transactional_id else ""
    owner = "a writer of this log" if transaction.own else "another producer"
    coordinator = "" if transaction.coordinator is None else f", coordinator broker {transaction.coordinator}"
    age = "" if age_ms is None else f" for {age_ms // 1000} s"
    text = (
        f"a transaction of {owner}{name}, producer id {transaction.producer_id}, epoch {transaction.producer_epoch}"
        f"{coordinator}, is open{age}. Readers wait before its first record in these partitions: {held}{more}"
    )
    if transaction.orphaned:
        problem, severity = Problem.HANGING_TRANSACTION, Severity.WARNING
        limit = "transaction.max.timeout.ms"
        if transaction.timeout_ms is not None:
            limit += f" ({transaction.timeout_ms // 1000} s)"
        text += (
            f". No coordinator lists it, and its age is not known. If it stays open for longer than {limit}, it "
            f"never ends by itself. Check that this user may describe all transactional ids"
        )
    else:
        problem = Problem.OPEN_TRANSACTION
        severity = Severity.WARNING if transaction.is_overdue(now_ms) else Severity.INFO
    load = _whole_load(topic, transaction)
    if load is not None:
        problem = Problem.UNDECIDED_LOAD
    details: dict[str, object] = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transactional_id": transaction.transactional_id or None,
        "coordinator": transaction.coordinator,
        "own": transaction.own,
        "load": load,
        "age_ms": age_ms,
        "since_ms": transaction.since_ms,
        "timeout_ms": transaction.timeout_ms,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "start_offset": each.start_offset}
            for each in transaction.partitions
        ],
    }
    fix = _fix(topic, transaction, load, places)
    return Finding(problem, severity, f"producer {transaction.producer_id}", text, fix, details)


def _whole_load(topic: str, transaction: OpenTransaction) -> str | None:
    _, whole, job = transaction.transactional_id.partition(f"/{topic}/whole/")
    return job if transaction.own and whole else None


def _fix(topic: str, transaction: OpenTransaction, load: str | None, places: Sequence[tuple[str, int]]) -> str:
    if load is not None:
        return f"if the load does not run any more: spark-cas abort {load} LOG"
    if transaction.own:
        return "spark-cas doctor LOG --abort"
    exact = f"--producer-id {transaction.producer_id} --producer-epoch {transaction.producer_epoch}"
    for name, partition in places:
        if name == topic:
            return f"spark-cas doctor LOG --abort {exact} --partition {partition}"
    return f"stop the producer, or run spark-cas doctor --abort {exact} on the topic that it holds"


def _of_expansion(log: Backend) -> Iterator[Finding]:
    intent = log.layouts().pending
    if intent is not None:
        yield Finding(
            Problem.UNFINISHED_EXPANSION,
            Severity.ERROR,
            f"log {log.topic}",
            f"an expansion from {intent.before} to {intent.partitions} partitions began and is not finished: no load "
            f"can append until it is",
            f"spark-cas expand LOG --partitions {intent.partitions}",
            {"before": intent.before, "partitions": intent.partitions},
        )


def _of_bounds(log: Backend) -> Iterator[Finding]:
    """Read the end of each partition, which raises an error if the newest chunk is damaged."""
    for partition in range(log.layout().partitions):
        try:
            log.bounds_of([partition], waiting=False)
        except ConditionalLogError as error:
            yield _unreadable(log, f"partition {partition}", error)


def _of_locks(log: Backend, now_ms: int) -> Iterator[Finding]:
    for lock in log.load_locks().held:
        ended = _has_ended(lock, now_ms)
        state = _PROCESS_STATES[is_process_running(lock.process)]
        yield Finding(
            Problem.LOAD_LOCK,
            Severity.WARNING if ended else Severity.INFO,
            f"job {lock.job}",
            f"job {lock.job} has had the load lock of partitions {lock.partitions_text} since "
            f"{clock.time_text(lock.granted_at_ms)} UTC. {state}. Other loads with expected offsets wait for it",
            f"if the load does not run any more: spark-cas abort {lock.job} LOG",
            {"job": lock.job, "since_ms": lock.granted_at_ms, "partitions": sorted(lock.partitions)},
        )


def _has_ended(lock: LoadLock, now_ms: int) -> bool:
    """Return whether the load of a lock has probably ended. On another host, its age decides."""
    running = is_process_running(lock.process)
    return not running if running is not None else _is_old(lock.granted_at_ms, now_ms)


def _of_jobs(log: Backend, now_ms: int) -> Iterator[Finding]:
    kept_ms = log.ledger_kept_ms()
    for each in job_states(log):
        if each.error is not None:
            yield _unreadable(log, f"job {each.job}", each.error)
            continue
        if each.state is State.COMPLETE:
            continue
        active_ms = max(each.planned_at_ms, each.newest_chunk_ms or 0)
        if each.state is State.UNDECIDED:
            yield _undecided(each, now_ms - active_ms)
        elif kept_ms is not None and now_ms - active_ms > _SOON_SHARE * kept_ms:
            yield _expiring(each, now_ms - active_ms, kept_ms)
        elif each.state is State.INCOMPLETE and not each.has_load_lock and _is_old(active_ms, now_ms):
            yield _unfinished(each, now_ms - active_ms)


def _undecided(job: JobState, age_ms: int) -> Finding:
    return Finding(
        Problem.UNDECIDED_LOAD,
        Severity.WARNING if age_ms > LONGEST_TRANSACTION_MS else Severity.INFO,
        f"job {job.job}",
        f"the newest rows of job {job.job} are neither committed nor aborted. Readers do not see them, and other "
        f"writers wait for them",
        f"if the load does not run any more: spark-cas abort {job.job} LOG",
        {"job": job.job, "age_ms": age_ms},
    )


def _expiring(job: JobState, age_ms: int, kept_ms: int) -> Finding:
    left_ms = kept_ms - age_ms
    when = f"expires in {left_ms // 3_600_000} h" if left_ms > 0 else "has expired"
    kind = "stream" if job.state is State.STREAM else "job"
    return Finding(
        Problem.LEDGER_EXPIRES,
        Severity.WARNING,
        f"job {job.job}",
        f"{kind} {job.job} is not complete, and its ledger entry {when} (offsets.retention.minutes). Without it, the "
        f"{kind} may not be able to resume",
        f"run the {kind} again, or give it up: spark-cas forget {job.job} LOG --force",
        {"job": job.job, "age_ms": age_ms, "left_ms": left_ms},
    )


def _unfinished(job: JobState, age_ms: int) -> Finding:
    return Finding(
        Problem.UNFINISHED_JOB,
        Severity.WARNING,
        f"job {job.job}",
        f"job {job.job} is not complete, has {job.rows} rows in the log, and has been idle for "
        f"{age_ms // 60_000} min",
        f"run the same load again, or give it up: spark-cas forget {job.job} LOG --force",
        {"job": job.job, "rows": job.rows, "age_ms": age_ms},
    )


def _unreadable(log: Backend, part: str, error: ConditionalLogError) -> Finding:
    return Finding(
        Problem.UNREADABLE,
        Severity.ERROR,
        f"log {log.topic}",
        f"{part} cannot be checked: {error.message}",
        _FIXES.get(error.kind, "check the brokers or the store, then run spark-cas doctor LOG"),
        details={"error": str(error.kind)},
    )


def _is_old(since_ms: int, now_ms: int) -> bool:
    return now_ms - since_ms > 1000 * timing.current().straggler_age
