"""Run queries of the kinds that tests run. The Makefile archives the classes that Spark has then loaded (JEP 350)."""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf


def _count(batch: DataFrame, _: int) -> None:
    batch.count()


def main() -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    spark = builder.config("spark.connect.grpc.binding.port", "0").getOrCreate()
    rows = spark.range(100).select("id", (sf.col("id") % 7).alias("key"), sf.current_timestamp().alias("time"))
    with tempfile.TemporaryDirectory() as folder:
        for format_ in ("parquet", "json", "csv", "orc"):
            rows.write.format(format_).save(f"{folder}/{format_}")
            read = spark.read.schema(rows.schema).format(format_).load(f"{folder}/{format_}")
            read.repartition(2, "key").sortWithinPartitions("id").mapInArrow(lambda each: each, rows.schema).collect()
        rows.groupBy("key").agg(sf.count("*"), sf.max("id")).orderBy("key").toPandas()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/parquet").writeStream
        stream = stream.foreachBatch(_count).option("checkpointLocation", f"{folder}/stream")
        stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
