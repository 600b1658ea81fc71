"""The examples of the README run as they stand, one after the other."""

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_of_the_readme(spark, broker, tmp_path, capsys):
    examples = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert examples
    names: dict[str, Any] = {}
    for example in examples:
        ours = example.replace("/data/", f"{tmp_path}/").replace("localhost:9092", broker.bootstrap)
        exec(compile(ours, "README.md", "exec"), names)  # noqa: S102 - our own text
    assert names["seen"].expected_offsets.count('"') == 2 * 4
    printed = capsys.readouterr().out
    assert [printed.count(value) for value in ("b'EWR to IAH'", "b'LGA to IAH'", "b'EWR to SFO'")] == [1, 1, 1]
