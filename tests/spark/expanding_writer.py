"""A process that appends to a log as long as it is not stopped: for each of its keys 0, 1, 2 and so on.

Arguments: the log, the name of its keys, how many records of each. Each record is an append of its own, to the
partition of its key as the log is then; where partitions are added meanwhile, it plans again.
"""

import itertools
import sys

import pyarrow as pa

from spark_cas import RECORDS, open_log
from spark_cas.core.chunks import Chunk
from spark_cas.core.claim import Claim
from spark_cas.core.digest import RunningDigest
from spark_cas.core.outcome import Appended, LayoutChanged
from spark_cas.core.partitioner import partition_of
from spark_cas.core.plan import Plan
from spark_cas.log.backend import Backend
from spark_cas.testing.writing import TIME_MS, plan_of

KEYS = 8


def main() -> None:
    """Append all."""
    path, name, count = sys.argv[1:]
    jobs = itertools.count()
    with open_log(path) as log:
        for number, key in itertools.product(range(int(count)), range(KEYS)):
            record = {"key": f"{name}{key}".encode(), "value": str(number).encode()}
            table = pa.Table.from_pylist([record], schema=RECORDS)
            while not append(log, table, f"{name}-{next(jobs)}"):
                pass


def append(log: Backend, table: pa.Table, job: str) -> bool:
    """Whether a record was appended; else the log is another by now."""
    plan: Plan = plan_of(log, job, "none")
    (batch,) = table.to_batches()
    claim = log.claim(int(partition_of(batch, plan.partitions)[0].as_py()), plan)
    if not isinstance(claim, Claim):
        return False
    digest = RunningDigest()
    digest.update(batch)
    outcome = log.append(claim, Chunk(table, 1, digest.hexdigest(), complete=True, task=job, time_ms=TIME_MS))
    assert isinstance(outcome, Appended | LayoutChanged), outcome
    return isinstance(outcome, Appended)


if __name__ == "__main__":
    main()
