"""atomic=load on Kafka: one transaction of one task over all partitions."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from spark_cas import error_from_text, open_log, route
from spark_cas.core.errors import ConflictError, NotRoutedError, OptionError
from spark_cas.log.load.planning import job_progress
from tests.contract.whole import bounded, everything
from tests.kafka.clients import create_topic
from tests.long import full
from tests.spark.test_whole_loads import ROWS, Bank, refused, rows_of, save
from tests.support.writing import append_foreign

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def path(broker):
    """A topic of two partitions."""
    return f"kafka://{broker.bootstrap}/{create_topic(broker.bootstrap, 2)}"


@pytest.fixture
def log(path):
    with open_log(path) as opened:
        yield opened


def rows_in(log):
    return sum(len(values) for values in everything(log).values())


def test_all_rows_are_there_once_in_the_order_of_route_and_again_nothing(spark, log, path):
    save(rows_of(spark, "a"), path, job="mine")
    held = everything(log)
    assert sorted(value for values in held.values() for value in values) == sorted(f"a{at}" for at in range(ROWS))
    assert all(values == sorted(values) for values in held.values())
    assert [each.complete for each in job_progress(log, "mine")] == [True, True]
    save(rows_of(spark, "a"), path, job="mine")
    assert everything(log) == held


def test_refused_in_one_partition_it_leaves_nothing_in_the_other(spark, log, path):
    taken = append_foreign(log, 1, "somebody").range
    error = refused(rows_of(spark, "a"), path, job="mine", expectedOffsets='{"0": 0, "1": 0}')
    assert isinstance(error, ConflictError)
    assert everything(log) == {0: [], 1: ["somebody"]}
    save(rows_of(spark, "a"), path, job="mine", expectedOffsets=f'{{"0": 0, "1": {taken.end_offset}}}')
    assert rows_in(log) == ROWS + 1


@pytest.mark.parametrize("change", ["split", "not routed for it", *full("filtered")])
def test_rows_moved_after_route_are_rejected_before_any_append(spark, log, path, change):
    options = {"path": path, "job": "mine", "atomic": "load"}
    frame = route(rows_of(spark, "a"), options if change != "not routed for it" else {"path": path, "job": "mine"})
    frame = {"split": frame.repartition(3), "filtered": frame.where("key != 'a7'")}.get(change, frame)
    writer = frame.write.format("conditional-log").mode("append").options(**options, routed="true")
    with pytest.raises(PySparkException) as caught:
        writer.save()
    assert isinstance(error_from_text(str(caught.value)), NotRoutedError)
    assert everything(log) == {0: [], 1: []}
    save(rows_of(spark, "a"), path, job="mine")
    assert rows_in(log) == ROWS


@pytest.mark.parametrize(("at_route", "at_write"), [({}, {"atomic": "load"}), ({"atomic": "load"}, {})])
def test_atomic_load_for_only_route_or_write_names_both(spark, log, path, at_route, at_write):
    routed = route(rows_of(spark, "a"), {"path": path, **at_route})
    with pytest.raises(PySparkException) as caught:
        routed.write.format("conditional-log").mode("append").options(**at_write).save(path)
    error = error_from_text(str(caught.value))
    assert isinstance(error, OptionError if at_route else NotRoutedError)
    assert "atomic" in error.message
    assert "route" in error.message
    assert everything(log) == {0: [], 1: []}


def test_atomic_partition_at_the_write_alone_is_enough(spark, log, path):
    routed = route(rows_of(spark, "a"), path)
    routed.write.format("conditional-log").mode("append").option("atomic", "true").save(path)
    assert rows_in(log) == ROWS


def test_a_task_that_fails_leaves_nothing(spark, log, path):
    broken = rows_of(spark, "a").withColumn(
        "value", sf.when(sf.col("key") == "a1999", sf.raise_error(sf.lit("out of order"))).otherwise(sf.col("value"))
    )
    with pytest.raises(Exception, match="out of order"):
        save(broken, path, job="mine")
    assert everything(log) == {0: [], 1: []}
    save(rows_of(spark, "a"), path, job="mine")
    assert rows_in(log) == ROWS


@pytest.mark.timeout(900)
@pytest.mark.parametrize("times", [1, *full(20)])
def test_of_some_at_once_each_is_visible_as_a_whole(spark, log, path, times):
    done = threading.Event()
    seen = []

    def look():
        with open_log(path) as opened:
            while not done.is_set():
                seen.append(sum(len(values) for values in bounded(opened).values()))

    with ThreadPoolExecutor(3) as threads:
        looking = threads.submit(look)
        try:
            for time in range(times):
                names = [f"{name}{time}-" for name in "abc"]
                for each in [threads.submit(save, rows_of(spark, name), path, job=name) for name in names]:
                    each.result()
        finally:
            done.set()
        looking.result()
    assert rows_in(log) == 3 * ROWS * times
    assert {count % ROWS for count in seen} == {0}


@pytest.mark.full
def test_transfers_between_accounts_in_two_partitions_never_change_the_sum(spark, log, path):
    bank = Bank(spark, path)
    assert all(everything(log).values()), "there are accounts in both"
    with ThreadPoolExecutor(3) as threads:
        paying = [threads.submit(bank.transfer, payer, payee, 7) for payer, payee in (("ann", "gus"), ("gus", "bob"))]
        sums = {sum(bank.read()[0].values()) for _ in range(3)}
        for each in paying:
            each.result()
    assert {*sums, sum(bank.read()[0].values())} == {400}
