"""Loads with atomic=load: at any time, readers see the rows of all partitions or none."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from spark_cas import bootstrap, error_from_text, open_log, route
from spark_cas.core.errors import ConflictError, FencedError, LoadInProgressError
from spark_cas.log.load.atomic_load import with_group
from spark_cas.log.load.planning import complete_job, job_progress
from spark_cas.options.parse import parse_write
from spark_cas.spark.writing.write import ConditionalLogWriter, plan_write
from tests.contract.whole import everything
from tests.long import full
from tests.support.loads import load
from tests.support.loads import rows_of as load_rows_of
from tests.support.writing import append_foreign

pytestmark = pytest.mark.spark

ROWS = 2_000
BY_PARTITION = load_rows_of(4, 0, 1)
KEYED = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def rows_of(spark, name, rows=ROWS):
    key = sf.concat(sf.lit(name), sf.col("id").cast("string"))
    return spark.range(rows).select(key.alias("key"), key.alias("value"))


def save(frame, path, **options):
    options = {"path": path, "atomic": "load", "maxRecordsPerChunk": "200", **options}
    route(frame, options).write.format("conditional-log").mode("append").options(**options).save()


def ends(path):
    with open_log(path) as log:
        return [bounds.end_offset for bounds in log.bounds_of(range(2), waiting=True)]


def refused(frame, path, **options):
    with pytest.raises(Exception, match=r"\[[A-Z_]+\]") as caught:
        save(frame, path, **options)
    error = error_from_text(str(caught.value))
    assert error is not None
    return error


def test_refused_in_one_partition_it_leaves_nothing_in_the_other(spark, log, path):
    append_foreign(log, 1, "somebody", "else")
    held = ends(path)
    error = refused(rows_of(spark, "a"), path, job="mine", expectedOffsets='{"0": 0, "1": 1}')
    assert isinstance(error, ConflictError)
    assert ends(path) == held
    save(rows_of(spark, "a"), path, job="mine", expectedOffsets='{"0": 0, "1": 2}')
    assert spark.read.format("conditional-log").load(path).count() == ROWS + 2


def test_partition_without_rows_is_checked_at_the_commit(spark, log, path):
    one = spark.createDataFrame([("ann", b"a")], KEYED)  # in partition 0
    append_foreign(log, 1, "somebody")
    error = refused(one, path, job="mine", expectedOffsets='{"0": 0, "1": 0}')
    assert isinstance(error, ConflictError)
    assert ends(path) == [0, 1]
    save(one, path, job="mine", expectedOffsets='{"0": 0, "1": 1}')
    append_foreign(log, 1, "next")
    rows = spark.read.format("conditional-log").load(path).select("value").collect()
    assert sorted(bytes(row.value) for row in rows) == [b"a", b"next", b"somebody"]


def test_interleaved_writer_leaves_all_or_nothing(spark, log, path):
    """If another writer appends to one partition after the load is planned, the load appends all rows or none."""
    coming = threading.Event()

    def come_in_between():
        while log.plan("mine") is None:
            assert not coming.wait(0.005)
        append_foreign(log, 1, "in between")

    broad = rows_of(spark, "a").repartition(4)
    with ThreadPoolExecutor(1) as threads:
        between = threads.submit(come_in_between)
        try:
            save(broad, path, job="mine")
            told = None
        except Exception as error:  # noqa: BLE001 - checked below
            told = error_from_text(str(error))
        finally:
            coming.set()
            between.result()
    rows = spark.read.format("conditional-log").load(path).where("value != 'in between'").count()
    assert isinstance(told, ConflictError) if rows == 0 else (told is None and rows == ROWS)


def test_failed_task_leaves_nothing_and_the_job_restarts(spark, log, path):
    # Fail after the shuffle: Spark has planned the load by then.
    failing = sf.when(sf.col("key") == "a1999", sf.raise_error(sf.lit("out of order"))).otherwise(sf.col("value"))
    options = {"path": path, "job": "mine", "atomic": "load"}
    broken = route(rows_of(spark, "a"), options).withColumn("value", failing)
    with pytest.raises(Exception, match="out of order"):
        broken.write.format("conditional-log").mode("append").options(**options).save()
    assert everything(log) == {0: [], 1: []}
    assert job_progress(log, "mine") == ()
    plan = log.plan("mine")
    assert plan is not None
    assert with_group(log, plan).group.endswith(".1"), "its transaction was aborted"
    save(rows_of(spark, "a"), path, job="mine")
    assert sum(map(len, everything(log).values())) == ROWS


@pytest.mark.parametrize("times", [2, *full(20)])
def test_of_two_at_once_each_is_visible_as_a_whole(spark, log, path, times):
    """A concurrent reader sees all rows of each load or none."""
    done = threading.Event()
    seen = []

    def look():
        with open_log(path) as opened:
            while not done.is_set():
                seen.append(sum(each.end_offset for each in opened.bounds_of(range(2), waiting=True)))

    with ThreadPoolExecutor(3) as threads:
        looking = threads.submit(look)
        try:
            for round_ in range(times):
                loads = [threads.submit(save, rows_of(spark, name), path, job=f"{name}-{round_}") for name in "ab"]
                for each in loads:
                    each.result()
        finally:
            done.set()
        looking.result()
    assert sum(ends(path)) == 2 * ROWS * times
    assert {count % ROWS for count in seen} == {0}
    assert len(set(seen)) > 2


BALANCE = 100
ACCOUNTS = ("ann", "gus", "bob", "ida")


class Bank:
    """Accounts in both partitions of a log. A transfer between two accounts reads all of them first."""

    def __init__(self, spark, path):
        self.spark = spark
        self.path = path
        save(self._rows(dict.fromkeys(ACCOUNTS, BALANCE)), path, job="opening")

    def read(self):
        """Return the balances, and the expected offsets of a write that depends on them."""
        seen = bootstrap(self.spark, self.path)
        rows = seen.state.select("key", "value").collect()
        return {row.key.decode(): int(row.value.decode()) for row in rows}, seen.expected_offsets

    def transfer(self, payer, payee, amount):
        """Read the balances and write new ones. Retry if another load conflicts."""
        while True:
            balances, expected_offsets = self.read()
            decided = {payer: balances[payer] - amount, payee: balances[payee] + amount}
            try:
                save(self._rows(decided), self.path, job=uuid.uuid4().hex, expectedOffsets=expected_offsets)
            except Exception as error:
                if not isinstance(error_from_text(str(error)), ConflictError | LoadInProgressError):
                    raise
            else:
                return

    def _rows(self, balances):
        rows = [(account, str(balance).encode()) for account, balance in balances.items()]
        return self.spark.createDataFrame(rows, KEYED)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("writers", "transfers"), [(2, 1), pytest.param(4, 20, marks=pytest.mark.full)])
def test_transfers_between_accounts_in_two_partitions_never_change_the_sum(spark, log, path, writers, transfers):
    bank = Bank(spark, path)
    assert all(ends(path)), "there are accounts in both"
    done = threading.Event()
    sums = []

    def pay(writer):
        for number in range(transfers):
            bank.transfer(ACCOUNTS[(writer + number) % 4], ACCOUNTS[(writer + number + 1) % 4], writer + 1)

    def watch():
        while not done.is_set():
            sums.append(sum(bank.read()[0].values()))

    with ThreadPoolExecutor(5) as threads:
        watching = threads.submit(watch)
        try:
            for each in [threads.submit(pay, writer) for writer in range(writers)]:
                each.result()
        finally:
            done.set()
        watching.result()
    assert {*sums, sum(bank.read()[0].values())} == {BALANCE * len(ACCOUNTS)}
    assert spark.read.format("conditional-log").load(path).count() == len(ACCOUNTS) + 2 * writers * transfers


def test_complete_load_appends_nothing_in_a_rerun(spark, log, path):
    for _ in range(2):
        save(rows_of(spark, "a"), path, job="mine")
        assert sum(ends(path)) == ROWS


@pytest.mark.parametrize("fenced_since", [True, False])
def test_aborted_run_does_not_abort_the_load_of_another_run(log, path, fenced_since):
    """A run aborts like a driver whose task was fenced by the next run of its job."""
    schema = StructType([*KEYED.fields, StructField("partition", IntegerType())])
    options = parse_write({"path": path, "job": "mine", "atomic": "load", "routed": "true"})
    first, second = (plan_write(options, schema) for _ in range(2))
    assert isinstance(second, ConditionalLogWriter)
    plan = second.task.plan
    results = load(log, plan, BY_PARTITION, task="second/0")
    (first if fenced_since else second).abort([])
    if fenced_since:
        assert complete_job(log, plan, results).rows == 8
        assert everything(log) == BY_PARTITION
    else:
        with pytest.raises(FencedError):
            complete_job(log, plan, results)
        assert everything(log) == {0: [], 1: []}
