"""A declarative pipeline whose sink is a log, run with Spark's own command."""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_cas import open_log
from spark_cas.spark.supported import number_of
from tests.spark_cluster import spark_environment
from tests.support.writing import values_in

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.timeout(500),
    pytest.mark.skipif(number_of(pyspark.__version__) < (4, 1), reason="pyspark 4.0 has no declarative pipelines"),
]

ROOT = Path(__file__).parents[2]
COMMAND = Path(sys.executable).with_name("spark-pipelines")
DEFINITION = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from spark_cas import route

OPTIONS = {{"path": {log!r}, "partitions": "2", "job": "flights"}}
dp.create_sink("log", "conditional-log", OPTIONS)
lines = SparkSession.active().readStream.schema("value STRING").text({source!r})
rows = lines.selectExpr("value AS key", "value")
{outside}


@dp.append_flow(target="log")
def flow():
    return {inside}
"""


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log")


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def run(spark, connect_port, tmp_path, log, source):
    """A function that runs the pipeline on the shared Spark Connect server, and returns its exit code and output."""

    def run(*arguments, outside="routed = route(rows, OPTIONS)", inside="routed"):
        spec = {
            "name": "flights",
            "storage": f"file://{tmp_path}/storage",
            "libraries": [{"glob": {"include": "definition.py"}}],
            "configuration": {"spark.sql.pipelines.execution.maxFlowRetryAttempts": "0"},
        }
        (tmp_path / "pipeline.yml").write_text(json.dumps(spec))
        definition = DEFINITION.format(log=log, source=str(source), outside=outside, inside=inside)
        (tmp_path / "definition.py").write_text(definition)
        remote = f"sc://127.0.0.1:{connect_port}"
        command = [COMMAND, "--remote", remote, "run", "--spec", tmp_path / "pipeline.yml", *arguments]
        environment = spark_environment({"PYTHONPATH": str(ROOT)}, "127.0.0.1", tmp_path)
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    return run


def rows_in(path):
    with open_log(path) as log:
        return sorted(value for partition in (0, 1) for value in values_in(log, partition))


def test_sink_of_a_pipeline_appends_each_row_once(run, log, source):
    expected = []
    for name in "ab":
        rows = [f"{name}{row}" for row in range(10)]
        (source / f"{name}.txt").write_text("\n".join(rows))
        expected += rows
        code, output = run()
        assert code == 0, output
        assert rows_in(log) == expected
    code, output = run("--full-refresh-all")
    assert code != 0
    assert "[JOB_MISMATCH]" in output, "a full refresh has a new checkpoint"
    assert rows_in(log) == expected


def test_flow_cannot_route(run, source):
    """If Spark begins to permit reads in a flow, remove this limit from docs/streams.md."""
    (source / "a.txt").write_text("a")
    code, output = run(outside="", inside="route(rows, OPTIONS)")
    assert code != 0
    assert "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" in output, output
