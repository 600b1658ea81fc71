"""How often the options are parsed: once on the driver, and once in each process in which Spark plans."""

from unittest.mock import patch

import pytest
from pyspark.sql.functions import lit

from spark_cas import append_if_unchanged, bootstrap, route
from spark_cas.core.guarantee import OFF
from spark_cas.options.option_values import OptionValues
from spark_cas.programs.saved_state import save_state
from spark_cas.spark.source import ConditionalLogSource

pytestmark = pytest.mark.spark

ROWS = "SELECT string(id) AS key, string(id) AS value FROM range(20)"
PARSE = OptionValues.__init__


@pytest.fixture
def parses(monkeypatch):
    """A list with an entry for each time that the driver parses options."""
    result = []

    def parse(self, options, *scopes):
        result.append(scopes)
        PARSE(self, options, *scopes)

    monkeypatch.setattr(OptionValues, "__init__", parse)
    return result


class CountingSource(ConditionalLogSource):
    """A source that records in a file each time that a method parses the options."""

    @classmethod
    def name(cls):
        return "counting"

    def schema(self):
        with self._recorded("schema"):
            return super().schema()

    def reader(self, schema):
        with self._recorded("reader"):
            return super().reader(schema)

    def writer(self, schema, overwrite):
        with self._recorded("writer"):
            return super().writer(schema, overwrite)

    def _recorded(self, method):
        def parse(values, options, *scopes):
            with open(f"{self.options['path']}-parses", "a") as file:  # noqa: PTH123 - runs in Spark's process
                file.write(f"{method}\n")
            PARSE(values, options, *scopes)

        return patch.object(OptionValues, "__init__", parse)


def test_write_and_read_parse_once_in_each_process(spark, path, parses):
    spark.dataSource.register(CountingSource)
    options = {"path": path, "partitions": 2, "job": "load-1"}
    routed = route(spark.sql(ROWS), options)
    routed.write.format("counting").mode("append").options(**options).save()
    assert spark.read.format("counting").load(path).count() == 20
    assert len(parses) == 1
    with open(f"{path}-parses") as file:  # noqa: PTH123 - as above
        assert file.read().split() == ["writer", "schema", "reader"]


@pytest.mark.parametrize("named", [("--job", "load-1"), (), ("--log-option", f"idempotence={OFF}")])
def test_load_parses_once_on_the_driver(load, parses, named):
    log = () if not named or named[0] == "--job" else ("--expected-offsets", "none")
    code, report, _ = load("--query", ROWS, "--key", "key", "--value", "value", "--partitions", "2", *named, *log)
    assert (code, report["rows"]) == (0, 20)
    assert len(parses) == 1


def test_state_and_conditional_append_parse_once_for_each_pinned_log(spark, load, parses, tmp_path):
    load("--query", ROWS, "--key", "key", "--value", "value", "--partitions", "2")
    parses.clear()
    assert bootstrap(spark, load.log).state.count() == 20
    assert len(parses) == 1
    save_state(spark, {"path": load.log}, "parquet", str(tmp_path / "state"))
    assert len(parses) == 2
    parses.clear()
    rows = spark.sql(ROWS).withColumn("expected_offset", lit(-1).cast("bigint"))
    assert append_if_unchanged(rows, load.log).rejected.isEmpty()
    # The options of the call, and those of the two reads of the log.
    assert len(parses) == 3
