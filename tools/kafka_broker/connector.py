"""Spark's own Kafka connector and Avro functions from Maven Central, which PySpark does not include."""

from importlib.metadata import version
from pathlib import Path

from tools.kafka_broker.jars import one_jar, resolved

SPARK_VERSION = "4.2.0"
"""The newest available version. It works with every Spark 4.2."""
_AVRO_VERSIONS = {"4.0": "4.0.2", "4.1": "4.1.1"}
"""The newest available versions for older versions of Spark."""

_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="spark_cas" module="spark-connector"/>
  <dependencies defaultconfmapping="default->default">
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{SPARK_VERSION}" transitive="false"/>
    <!-- Not available in the same version. It is used only with delegation tokens. -->
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="4.1.0-preview1"
                transitive="false"/>
    <!-- The ones that it is built with. -->
    <dependency org="org.apache.kafka" name="kafka-clients" rev="3.9.2" transitive="false"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.13.1" transitive="false"/>
  </dependencies>
</ivy-module>
"""


def connector_jars() -> list[Path]:
    """Return the jars for ``spark.jars``. The first call on a machine downloads them (10 MB)."""
    return sorted(resolved(f"spark-connector-{SPARK_VERSION}", _IVY_FILE).glob("*.jar"))


def all_avro_jars() -> list[Path]:
    """Return the folders of the jars for all versions of Spark, as `avro_jars`."""
    return [_avro_folder(each) for each in (*_AVRO_VERSIONS.values(), SPARK_VERSION)]


def _avro_folder(chosen: str) -> Path:
    return one_jar("org.apache.spark", "spark-avro_2.13", chosen)


def avro_jars() -> list[Path]:
    """Return the jar of ``from_avro`` and ``to_avro`` for ``spark.jars``, for the installed version of Spark.

    The first call downloads it (0.2 MB).
    """
    installed = version("pyspark").rpartition(".")[0]
    chosen = _AVRO_VERSIONS.get(installed, SPARK_VERSION)
    return sorted(_avro_folder(chosen).glob("*.jar"))
