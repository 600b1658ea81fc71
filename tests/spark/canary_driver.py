"""A Spark application that writes and reads with secrets in its options, and prints all that Spark shows of them.

Arguments: the options of a topic as JSON, and the folder for the event log. The settings are those of SPARK_CONF_DIR.
"""

import json
import sys
import traceback

from pyspark.sql import SparkSession

from spark_cas import route
from tests.spark.short_runs import SETTINGS

FORMAT = "conditional-log"


def attempt(call):
    """Call a function that fails, and print the whole error."""
    try:
        call()
    except Exception:  # noqa: BLE001 - any error is shown to the user
        traceback.print_exc(file=sys.stdout)
    else:
        sys.stdout.write("no error\n")


def main(options, failing, events):
    builder = SparkSession.builder.master("local[2]")
    events_log = {"enabled": "true", "dir": f"file:{events}", "compress": "false"}
    builder = builder.config(
        map={**{f"spark.eventLog.{name}": value for name, value in events_log.items()}, **SETTINGS}
    )
    spark = builder.config("spark.sql.warehouse.dir", f"{events}/../warehouse").getOrCreate()
    address = {name: value for name, value in options.items() if name not in ("job", "partitions")}
    frame = spark.range(20).selectExpr("string(id) AS key", "string(id) AS value")
    route(frame, options).write.format(FORMAT).mode("append").options(**options).save()
    read = spark.read.format(FORMAT).options(**address).load()
    assert read.count() == 20
    read.explain(extended=True)
    query = frame.selectExpr("key", "value", "0 AS partition").coalesce(1)
    query.createOrReplaceTempView("rows")
    pairs = ", ".join(f"'{name}'='{value}'" for name, value in address.items())
    spark.sql(f"CREATE TABLE log USING `{FORMAT}`")
    select = f"SELECT * FROM log WITH ({pairs})"  # noqa: S608
    assert spark.sql(select).count() == 20
    spark.sql(f"EXPLAIN EXTENDED {select}").show(truncate=False)
    spark.sql(f"CREATE VIEW flights AS {select}")
    assert spark.sql("SELECT * FROM flights").count() == 20
    spark.sql("EXPLAIN EXTENDED SELECT * FROM flights").show(truncate=False)
    spark.sql(f"CREATE TABLE flights_in (key STRING, value STRING, partition INT) USING `{FORMAT}`")
    insert = f"INSERT INTO flights_in WITH ({pairs}, 'job'='sql', 'routed'='true')"
    spark.sql(f"{insert} SELECT key, value, partition FROM rows")  # noqa: S608
    spark.sql(f"CREATE TEMPORARY VIEW temporary USING `{FORMAT}` OPTIONS ({pairs})")
    spark.sql("SELECT * FROM temporary").explain(extended=True)
    for each in failing:
        attempt(lambda each=each: spark.read.format(FORMAT).options(**each).load().count())
        attempt(lambda each=each: route(frame, each))
        attempt(lambda each=each: query.write.format(FORMAT).mode("append").options(**each, routed=True).save())
    store = spark._jsparkSession.sharedState().statusStore().executionsList()
    for number in range(store.size()):
        execution = store.apply(number)
        shown = (execution.description(), execution.details(), execution.physicalPlanDescription())
        sys.stdout.write("\n".join(shown))
    spark.stop()
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
