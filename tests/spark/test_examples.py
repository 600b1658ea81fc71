"""The examples of the README and of the pages that build on it, run one page after the other."""

from typing import Any

import pytest

from tests.pages import PAGES, Block, blocks
from tests.support.schema_registry import registry_double

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.s3, pytest.mark.timeout(300)]

IN_ORDER = [
    "README.md",
    "docs/pyspark.md",
    "docs/kafka-quickstart.md",
    "docs/authentication.md",
    "docs/object-store.md",
    "docs/streams.md",
    "docs/metrics.md",
    "docs/without-spark.md",
    "docs/condition-partition.md",
    "docs/conditions.md",
    "docs/condition-row.md",
    "docs/condition-key.md",
    "docs/atomic-loads.md",
    "docs/result.md",
    "docs/spark.md",
    "examples/key_value_store/README.md",
    "docs/schema-registry.md",
    "docs/orchestration.md",
]
"""The pages with examples. Each may use the names and logs of the pages before it."""

READER_HAS = {
    "docs/spark.md": """
route(flights, {"path": "/data/logs/flights", "job": "load-2"}).createOrReplaceTempView("routed")
""",
}
"""Code that a page assumes its reader has run."""

RUN = ("python", "sql")


def run(block: Block, spark, names: dict[str, Any], page: str) -> None:
    if block.language == "sql":
        for statement in filter(str.strip, block.text.split(";")):
            spark.sql(statement).collect()
        return
    exec(compile(block.text, page, "exec"), names)  # noqa: S102 - our own text
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def test_every_page_with_examples_is_run():
    assert {page for page in PAGES for block in blocks(page) if block.language in RUN} == set(IN_ORDER)


@pytest.fixture
def servers(broker, s3):
    """The addresses of the servers, by those on the pages. The schema registry is a test double."""
    fields = [{"name": name, "type": ["null", "string"]} for name in ("tail", "origin")]
    with registry_double() as double:
        double.register("flights-value", {"type": "record", "name": "Flight", "fields": fields})
        yield {"localhost:9092": broker.bootstrap, "s3://my-bucket": s3.url, "http://localhost:8081": double.url}


def test_the_examples_run_one_after_the_other(spark, s3, servers, tmp_path, capsys):
    # The options of the store that docs/object-store.md defines for a remote bucket.
    names: dict[str, Any] = {"store": {f"store.{name}": value for name, value in s3.options.items()}}
    for page in IN_ORDER:
        here = [Block("python", READER_HAS.get(page, ""), ""), *blocks(page)]
        for block in here:
            if block.language in RUN and not block.why_not_run:
                text = block.text.replace("/data/", f"{tmp_path}/")
                for address, own in servers.items():
                    text = text.replace(address, own)
                run(Block(block.language, text, ""), spark, names, page)
    spark.streams.removeListener(names["listener"])
    assert "spark_cas_rows_total" in (tmp_path / "spark_cas.prom").read_text()
    assert names["seen"].expected_offsets.count('"') == 2 * 4
    assert names["error"].next_offsets  # the conflict of docs/conditions.md
    printed = capsys.readouterr().out
    assert [printed.count(value) for value in ("b'EWR to IAH'", "b'LGA to IAH'", "b'EWR to SFO'")] == [1, 1, 1]
