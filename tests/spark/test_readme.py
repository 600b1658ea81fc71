"""The examples of the README, and of the pages that go on from it, run as they stand, one after the other."""

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/pyspark.md", "docs/kafka-quickstart.md", "docs/streams.md", "docs/without-spark.md"]
FIRST_OF = {"docs/streams.md": 1}
"""The others of a page are fragments: of streams that never end, or with names of a reader's own."""


def examples():
    for page in PAGES:
        found = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        assert found, page
        for example in found[: FIRST_OF.get(page)]:
            yield page, example


def test_the_examples_of_the_readme(spark, broker, tmp_path, capsys):
    names: dict[str, Any] = {}
    for page, example in examples():
        ours = example.replace("/data/", f"{tmp_path}/").replace("localhost:9092", broker.bootstrap)
        exec(compile(ours, page, "exec"), names)  # noqa: S102 - our own text
    assert names["seen"].expected_offsets.count('"') == 2 * 4
    printed = capsys.readouterr().out
    assert [printed.count(value) for value in ("b'EWR to IAH'", "b'LGA to IAH'", "b'EWR to SFO'")] == [1, 1, 1]
