"""Pin the settings of a Spark session that change the bytes of a loaded row.

A job may resume in another session, so a row must not depend on the session. During a load each setting in the table
has one value. The value is the default of Spark 4.2, unless the reason names another choice. SQL expressions of a
load therefore run in UTC: ``date_format(ts, 'HH')`` is the hour in UTC, and a timestamp text without a zone is UTC.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING
from warnings import catch_warnings

from pyspark.errors import PySparkException

from spark_cas.programs.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: Mapping[str, str] = MappingProxyType({})
_NO_VALUE = "SQL_CONF_NOT_FOUND"
"""Error condition of Spark for a setting without a value. This version may not know the setting."""

# One row per setting: its name after "spark.sql.", its value during a load, and the reason.
_TABLE: tuple[tuple[str, str, str], ...] = (
    # Time
    ("session.timeZone", "UTC", "zone of casts, of date functions and of timestamps in JSON (not Spark's default)"),
    ("timestampType", "TIMESTAMP_LTZ", "type of TIMESTAMP in SQL and in --schema"),
    ("timeType.enabled", "false", "type of times of day in files"),
    ("legacy.timeParserPolicy", "CORRECTED", "parser and formatter of dates and timestamps"),
    ("files.supportSecondOffsetFormat", "true", "seconds in zone offsets of CSV, JSON and XML"),
    ("legacy.csv.enableDateTimeParsingFallback", "false", "lenient dates in CSV"),
    ("legacy.json.enableDateTimeParsingFallback", "false", "lenient dates in JSON"),
    ("legacy.interval.enabled", "false", "type of date differences and of interval literals"),
    ("legacy.fromDayTimeString.enabled", "false", "fields of an interval literal that are ignored"),
    # Text of a SQL expression
    ("ansi.enabled", "true", "null instead of an error for failed casts, overflow and missing elements"),
    ("ansi.doubleQuotedIdentifiers", "false", '"x" is a string, not a column'),
    ("ansi.enforceReservedKeywords", "false", "names that are keywords"),
    ("ansi.relationPrecedence", "false", "order of joins in a query"),
    ("caseSensitive", "false", "matching of column names"),
    ("parser.escapedStringLiterals", "false", "backslashes in string literals"),
    ("parser.quotedRegexColumnNames", "false", "`x.*` is a name, not a pattern"),
    ("variable.substitute", "false", "${...} takes text from the session (not Spark's default)"),
    ("legacy.consecutiveStringLiterals.enabled", "false", "'a''b' holds a quote"),
    ("legacy.exponentLiteralAsDecimal.enabled", "false", "type of 1e3"),
    ("legacy.literal.pickMinimumPrecision", "true", "precision of an integer literal beside a decimal"),
    ("legacy.setopsPrecedence.enabled", "false", "order of UNION and INTERSECT"),
    ("legacy.ctePrecedencePolicy", "CORRECTED", "which of two WITH clauses a name refers to"),
    ("legacy.parseQueryWithoutEof", "false", "text after a query that is ignored"),
    ("legacy.parser.havingWithoutGroupByAsWhere", "false", "HAVING without GROUP BY"),
    ("legacy.cteDuplicateAttributeNames", "false", "case of column names, which are names in JSON"),
    ("stableDerivedColumnAlias.enabled", "false", "name of an expression, which is a name in JSON"),
    ("groupByOrdinal", "true", "GROUP BY 1 is the first column"),
    ("groupByAliases", "true", "GROUP BY an alias"),
    ("orderByOrdinal", "true", "ORDER BY 1 is the first column"),
    ("lateralColumnAlias.enableImplicitResolution", "true", "a name that is an alias and an outer column"),
    ("functionResolution.sessionOrder", "second", "temporary functions with the name of a built-in function"),
    # Results of functions and operators
    ("decimalOperations.allowPrecisionLoss", "true", "scale of decimal arithmetic"),
    ("legacy.decimal.retainFractionDigitsOnTruncate", "false", "scale of the common type of decimals"),
    ("legacy.allowNegativeScaleOfDecimal", "false", "scale of decimals such as 1E10BD"),
    ("storeAssignmentPolicy", "ANSI", "casts to the columns of the log"),
    ("mapKeyDedupPolicy", "EXCEPTION", "value of a key that a map has twice"),
    ("legacy.disableMapKeyNormalization", "false", "-0.0 and 0.0 as keys of a map"),
    ("mapZipWithUsesJavaCollections", "true", "NaN as a key in map_zip_with"),
    ("legacy.allowHashOnMapType", "false", "hash of a map depends on its order"),
    ("legacy.collationAwareHashFunctions", "false", "hash of a string with a collation"),
    ("legacy.castComplexTypesToString.enabled", "false", "text of structs, maps and arrays"),
    ("legacy.createEmptyCollectionUsingStringType", "false", "type of array() and map()"),
    ("legacy.sizeOfNull", "true", "size of null without ANSI"),
    ("legacy.followThreeValuedLogicInArrayExists", "true", "exists with nulls"),
    ("legacy.allowNullComparisonResultInArraySort", "false", "array_sort with a comparison that gives null"),
    ("legacy.negativeIndexInArrayInsert", "false", "array_insert with a negative index"),
    ("legacy.nullInEmptyListBehavior", "false", "null IN an empty list"),
    ("legacy.duplicateBetweenInput", "false", "BETWEEN evaluates its operand twice"),
    ("function.concatBinaryAsString", "false", "type of concat of binaries"),
    ("function.eltOutputAsString", "false", "type of elt of binaries"),
    ("legacy.lpadRpadAlwaysReturnString", "false", "type of lpad and rpad of binaries"),
    ("chunkBase64String.enabled", "true", "line breaks in base64()"),
    ("icu.caseMappings.enabled", "true", "upper and lower"),
    ("legacy.javaCharsets", "false", "charsets of encode and decode"),
    ("legacy.codingErrorAction", "false", "characters that encode and decode replace"),
    ("legacy.truncateForEmptyRegexSplit", "false", "split with an empty pattern"),
    ("legacy.percentileDiscCalculation", "false", "percentile_disc"),
    ("legacy.statisticalAggregate", "false", "NaN or null of stddev and variance"),
    ("legacy.histogramNumericPropagateInputType", "true", "type of histogram_numeric"),
    ("legacy.integerGroupingId", "false", "type of grouping_id"),
    ("legacy.scalarSubqueryCountBugBehavior", "false", "count in a correlated subquery"),
    ("legacy.inlineCTEInCommands", "false", "WITH clauses that are evaluated twice"),
    ("optimizer.metadataOnly", "false", "values of partitions without rows"),
    # JSON, CSV and XML
    ("jsonGenerator.ignoreNullFields", "true", "nulls in to_json of an expression; --value-json keeps them"),
    ("json.enableExactStringParsing", "true", "text of numbers that are read as strings"),
    ("json.enablePartialResults", "true", "fields beside one that does not parse"),
    ("legacy.json.allowEmptyString.enabled", "false", "empty strings as null in JSON"),
    ("optimizer.enableJsonExpressionOptimization", "true", "from_json of to_json, which may be simplified"),
    ("optimizer.enableCsvExpressionOptimization", "true", "columns that from_csv does not parse"),
    ("variant.allowDuplicateKeys", "false", "duplicate keys in parse_json"),
    ("variant.validateUnicodeInJsonParsing", "true", "unpaired surrogates in parse_json"),
    ("legacy.nullValueWrittenAsQuotedEmptyStringCsv", "false", "null in to_csv"),
    ("legacy.useLegacyXMLParser", "false", "from_xml"),
    ("columnNameOfCorruptRecord", "_corrupt_record", "name of the column for text that does not parse"),
    ("csv.parser.columnPruning.enabled", "false", "malformed columns that are not read (not Spark's default)"),
    ("execution.datasources.hadoopLineRecordReader.enabled", "true", "compressed files that are read as they are"),
    # Files
    ("files.ignoreCorruptFiles", "false", "corrupt files that are left out"),
    ("files.ignoreMissingFiles", "false", "missing files that are left out"),
    ("files.ignoreInvalidPartitionPaths", "false", "folders that are left out"),
    ("sources.partitionColumnTypeInference.enabled", "false", "region=007 stays text (not Spark's default)"),
    ("sources.validatePartitionColumns", "true", "null for a partition value that does not fit its type"),
    ("sources.useV1SourceList", "avro,csv,json,kafka,orc,parquet,text", "reader of each format"),
    ("legacy.pathOptionBehavior.enabled", "false", "files of the option path"),
    ("legacy.readFileSourceTableCacheIgnoreOptions", "false", "options of a table that are ignored"),
    ("parquet.mergeSchema", "false", "columns that some files lack; the load merges them itself"),
    ("parquet.respectSummaryFiles", "false", "schema from _metadata files"),
    ("parquet.enableVectorizedReader", "true", "reader of Parquet"),
    ("parquet.enableNestedColumnVectorizedReader", "true", "reader of nested Parquet columns"),
    ("parquet.binaryAsString", "false", "type of binary columns without annotation"),
    ("parquet.int96AsTimestamp", "true", "type of INT96"),
    ("parquet.int96TimestampConversion", "false", "zone of INT96 timestamps of Impala"),
    ("parquet.inferTimestampNTZ.enabled", "true", "type of timestamps that are not in UTC"),
    ("parquet.datetimeRebaseModeInRead", "CORRECTED", "calendar of old dates of unknown writers"),
    ("parquet.int96RebaseModeInRead", "CORRECTED", "calendar of old INT96 timestamps of unknown writers"),
    ("parquet.fieldId.read.enabled", "false", "columns by field id"),
    ("parquet.fieldId.read.ignoreMissing", "false", "null for columns without field id"),
    ("parquet.ignoreVariantAnnotation", "false", "type of variant columns"),
    ("parquet.reader.respectUnknownTypeAnnotation.enabled", "false", "type of columns that hold nulls only"),
    ("legacy.parquet.nanosAsLong", "false", "nanosecond timestamps as numbers"),
    ("legacy.parquet.returnNullStructIfAllFieldsMissing", "false", "null or a struct of nulls"),
    ("variant.allowReadingShredded", "true", "shredded variants"),
    ("orc.impl", "native", "reader of ORC"),
    ("orc.mergeSchema", "false", "columns that some files lack; the load merges them itself"),
    ("orc.enableVectorizedReader", "true", "reader of ORC"),
    ("orc.enableNestedColumnVectorizedReader", "true", "reader of nested ORC columns"),
    # Tables of a query
    ("legacy.charVarcharAsString", "false", "CHAR and VARCHAR"),
    ("preserveCharVarcharTypeInfo", "false", "CHAR and VARCHAR in results"),
    ("readSideCharPadding", "false", "spaces that CHAR adds to values of files (not Spark's default)"),
    ("legacy.noCharPaddingInPredicate", "false", "padding of CHAR in comparisons"),
    ("legacy.avro.allowIncompatibleSchema", "false", "Avro types that do not fit"),
    ("avro.datetimeRebaseModeInRead", "CORRECTED", "calendar of old dates in Avro"),
    ("hive.convertMetastoreParquet", "true", "reader of Hive tables in Parquet"),
    ("hive.convertMetastoreParquet.mergeSchema", "false", "columns of Hive tables in Parquet"),
    ("hive.convertMetastoreOrc", "true", "reader of Hive tables in ORC"),
    ("legacy.mssqlserver.numericMapping.enabled", "false", "types of SQL Server"),
    ("legacy.mssqlserver.datetimeoffsetMapping.enabled", "false", "types of SQL Server"),
    ("legacy.mysql.bitArrayMapping.enabled", "false", "types of MySQL"),
    ("legacy.mysql.timestampNTZMapping.enabled", "false", "types of MySQL"),
    ("legacy.oracle.timestampMapping.enabled", "false", "types of Oracle"),
    ("legacy.db2.numericMapping.enabled", "false", "types of DB2"),
    ("legacy.db2.booleanMapping.enabled", "false", "types of DB2"),
    ("legacy.postgres.datetimeMapping.enabled", "false", "types of PostgreSQL"),
)

PINNED: Mapping[str, str] = MappingProxyType({f"spark.sql.{name}": value for name, value, _ in _TABLE})
"""Each pinned setting and its value during a load."""


@contextmanager
def pinned_settings(spark: "SparkSession", extra: Mapping[str, str] = _NONE) -> Iterator[None]:
    """Set all settings of `PINNED` and ``extra`` within the context, and restore the previous values after it.

    Spark resolves a DataFrame when it is built and when it runs, so both must be within the context. Other threads
    that use the same session see the pinned values too. A setting is skipped if it has no value and the session
    rejects it as unknown.

    Raises:
        UsageError: if the session does not permit a change of a setting; all settings are restored first
    """
    explicit = spark.conf.getAll
    changed: list[str] = []
    try:
        for name, value in {**PINNED, **extra}.items():
            if _current(spark, name) != value and _set(spark, name, value):
                changed.append(name)
        yield
    finally:
        for name in changed:
            _restore(spark, name, explicit.get(name))


def _set(spark: "SparkSession", name: str, value: str) -> bool:
    """Set a setting and return True; False if the session does not know it and rejects it."""
    try:
        with catch_warnings(action="ignore"):  # Connect warns about deprecated settings
            spark.conf.set(name, value)
    except PySparkException as error:
        current = _current(spark, name)
        if current is None:
            return False
        raise UsageError(
            f"the session does not allow {name} to be changed: it is {current!r}, and a load needs {value!r}. "
            f"Nothing was appended. Set it where the session is configured."
        ) from error
    return True


def _restore(spark: "SparkSession", name: str, value: str | None) -> None:
    if value is None:
        spark.conf.unset(name)
        return
    with catch_warnings(action="ignore"):  # as above
        spark.conf.set(name, value)


def _current(spark: "SparkSession", name: str) -> str | None:
    """Return the value of a setting; None if it has none, or if this version of Spark does not know it."""
    try:
        return spark.conf.get(name)
    except PySparkException as error:
        if error.getCondition() != _NO_VALUE:
            raise
        return None
