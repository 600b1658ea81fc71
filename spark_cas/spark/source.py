"""The data source ``conditional-log``.

Spark starts a process for each request to a data source, so each method imports only the modules that it needs.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_cas.spark.plain_errors import called_by_spark


@called_by_spark
class ConditionalLogSource(DataSource):
    """The source of ``spark.read``, ``spark.readStream`` and ``df.write`` with ``.format("conditional-log")``.

    It stores the options as Spark passes them. Each method parses them when Spark calls it.
    """

    @classmethod
    def name(cls) -> str:
        return "conditional-log"

    def schema(self) -> StructType:
        from spark_cas.options.parse import check_read
        from spark_cas.spark.schema import read_schema

        view, include_headers = check_read(self.options)
        return read_schema(view, include_headers=include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_cas.options.parse import parse_read
        from spark_cas.options.table import VIEWS_OF_RECORDS
        from spark_cas.spark.schema import check_read_schema

        request = parse_read(self.options)
        check_read_schema(schema, request.view)
        if request.view in VIEWS_OF_RECORDS:
            from spark_cas.spark.reading.read import RecordsReader

            return RecordsReader(request, schema)
        from spark_cas.spark.reading.read import ViewReader

        return ViewReader(request, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_cas.options.parse import parse_read_stream
        from spark_cas.spark.reading.stream_read import RecordsStreamReader
        from spark_cas.spark.schema import check_read_schema
        from spark_cas.spark.versions import stream_reader

        check_read_schema(schema, "records")
        request = parse_read_stream(self.options)
        return stream_reader(RecordsStreamReader(request, schema), by_time=request.processing_time)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_cas.options.parse import names_no_topic, parse_write
        from spark_cas.spark.schema import check_not_overwrite
        from spark_cas.spark.writing.stream_write import plan_batch_write
        from spark_cas.spark.writing.write import plan_write

        check_not_overwrite(overwrite=overwrite)
        if names_no_topic(self.options) and "topic" in schema.fieldNames():
            from spark_cas.spark.writing.topics_write import plan_topics

            return plan_topics(self.options, schema)
        request = parse_write(self.options)
        return plan_write(request, schema) if request.batch_id is None else plan_batch_write(request, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_cas.core.errors import OptionError
        from spark_cas.options.parse import names_no_topic, parse_write_stream, stream_to_topics
        from spark_cas.spark.writing.stream_write import plan_stream_write

        if overwrite:
            raise OptionError(
                "a log is only ever appended to, and the query has output mode complete, which replaces all rows "
                "with each batch. Use .outputMode('append'), which an aggregation allows with a watermark; or write "
                "the whole result of each batch within foreachBatch."
            )
        if names_no_topic(self.options) and "topic" in schema.fieldNames():
            raise stream_to_topics()
        return plan_stream_write(parse_write_stream(self.options), schema)
