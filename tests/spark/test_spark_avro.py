"""`from_avro` and `to_avro` of Spark, in a JVM with their jar, and the columns of `spark_cas.schema_registry`."""

import json
import os
import subprocess
import sys

import pytest

from tests.jvms import INTERPRETED
from tests.pages import ROOT, blocks
from tests.support.schema_registry import registry_double
from tools.kafka_broker.connector import avro_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "tail", "type": "string"}]}
PREFIXED = bytes.fromhex("00 00000001 04 4e 31")
SCRIPT = """
import json, sys
from pyspark.sql import SparkSession
from spark_cas import schema_registry

registry, block, settings = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config(map=json.loads(settings)).getOrCreate()
rows = [(bytes.fromhex(each),) for each in ("0000000001044e31", "00000000020000", "7b7d")]
names = {"registry": registry, "schema_registry": schema_registry, "log": spark.createDataFrame(rows, "value BINARY")}
exec(block, names)
flights = [row.flight.tail for row in names["flights"].collect()]
values = [row.value.hex() for row in names["values"].collect()]
encoded = schema_registry.encode(names["flights"].withColumnRenamed("flight", "value"), subject="flights-value",
                                 registry=registry)
print(json.dumps([flights, values, [row.value.hex() for row in encoded.collect()]]))
spark.stop()
"""


@pytest.mark.full
def test_the_example_of_the_page_with_the_jar():
    [block] = [each.text for each in blocks("docs/schema-registry.md") if "from_avro" in each.text]
    jars = ",".join(map(str, avro_jars()))
    settings = json.dumps({"spark.jars": jars, "spark.ui.enabled": "false", **INTERPRETED})
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with registry_double() as double:
        double.register("flights-value", FLIGHT)
        command = [sys.executable, "-c", SCRIPT, double.url, block, settings]
        ran = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stderr[-3000:]
    flights, values, encoded = json.loads(ran.stdout.splitlines()[-1])
    assert flights == ["N1"]
    assert values == encoded == [PREFIXED.hex()]
