"""A process that appends the values 0, 1, 2 and so on for each of its keys, while another process adds partitions.

Arguments: the log, the prefix of the keys, and the number of records of each key. Each record is a separate append to
the partition of its key in the current layout. If the layout changes before the append, the process retries it with a
new plan.
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
from tests.support.writing import TIME_MS, plan_of

KEYS = 8


def main() -> None:
    """Append all records."""
    path, name, count = sys.argv[1:]
    jobs = itertools.count()
    with open_log(path) as log:
        for number, key in itertools.product(range(int(count)), range(KEYS)):
            record = {"key": f"{name}{key}".encode(), "value": str(number).encode()}
            table = pa.Table.from_pylist([record], schema=RECORDS)
            while not append(log, table, f"{name}-{next(jobs)}"):
                pass


def append(log: Backend, table: pa.Table, job: str) -> bool:
    """Append one record. Return False if the layout changed first, and nothing was appended."""
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
