import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_cas.core import errors
from spark_cas.core.errors import (
    ERRORS_BY_KIND,
    ConditionalLogError,
    ErrorKind,
    Fields,
    InputError,
    error_from_text,
    wrapped_error,
)

TREE = """
ConditionalLogError
  RefusedError
    ConflictError CONFLICT
    TruncatedError TRUNCATED
    FencedError FENCED
    ProgressLostError PROGRESS_LOST
    LayoutChangedError LAYOUT_CHANGED
    LoadInProgressError LOAD_IN_PROGRESS
  UnknownOutcomeError UNKNOWN_OUTCOME
  InputError
    OptionError OPTION
    SchemaError SCHEMA
    ExpectedOffsetError BAD_EXPECTED_OFFSET
    RecordTooLargeError RECORD_TOO_LARGE
    NotRoutedError NOT_ROUTED
    InputChangedError INPUT_CHANGED
      MissingRowsError
    JobMismatchError JOB_MISMATCH
    CheckpointMismatchError CHECKPOINT_MISMATCH
    BatchTooLargeError BATCH_TOO_LARGE
    SparkSetupError SPARK_SETUP
    UnreadableInputError INPUT_UNREADABLE
  LogError
    LogNotFoundError LOG_NOT_FOUND
    LogNotSharedError LOG_NOT_SHARED
    TrimmedError TRIMMED
    FormatError FORMAT
    StoreUnsafeError STORE_UNSAFE
    ChunkDamagedError CHUNK_DAMAGED
    UnreadableRecordError UNREADABLE_RECORD
    StorageError STORAGE
      AccessDeniedError ACCESS_DENIED
      NotStoredError NOT_STORED
      TransactionEndedError
      UndecidedError
"""

KINDS = [pytest.param(kind, id=kind) for kind in ErrorKind]


def drawn(error: type[ConditionalLogError], depth: int = 0) -> list[str]:
    kind = f" {error.kind}" if "kind" in vars(error) else ""
    lines = [f"{'  ' * depth}{error.__name__}{kind}"]
    for each in error.__subclasses__():
        if each.__module__ == ConditionalLogError.__module__:  # a backend may define subclasses of its own
            lines += drawn(each, depth + 1)
    return lines


def test_the_tree_is_the_documented_one():
    assert drawn(ConditionalLogError) == TREE.strip().splitlines()


def test_each_kind_has_exactly_one_class():
    kinds = [line.split()[1] for line in TREE.strip().splitlines() if " " in line.strip()]
    assert sorted(kinds) == sorted(ErrorKind)
    assert sorted(ERRORS_BY_KIND) == sorted(ErrorKind)
    assert all(ERRORS_BY_KIND[kind].kind is kind for kind in ErrorKind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_begins_with_the_token(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]("something was expected.")
    assert str(error) == f"[{kind.value}] something was expected."
    assert error.message == "something was expected."


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_a_pickle(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]("partition 3: naïve “text” [FENCED] inside", partition=3, next_offsets={3: None})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert (again.args, again.fields, str(again)) == (error.args, error.fields, str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_input_errors_are_value_errors_and_no_others_are(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]
    assert issubclass(error, ValueError) == issubclass(error, InputError)


def test_errors_that_a_retry_of_the_same_call_may_fix():
    retriable = {kind for kind in ErrorKind if ERRORS_BY_KIND[kind].retriable}
    assert retriable == {
        ErrorKind.FENCED,
        ErrorKind.LOAD_IN_PROGRESS,
        ErrorKind.STORAGE,
        ErrorKind.UNKNOWN_OUTCOME,
    }
    assert errors.UndecidedError.retriable
    assert errors.TransactionEndedError.retriable


HIDDEN, SHOWN = (
    "",
    """\
Traceback (most recent call last):
  File "/spark_cas/spark/plain_errors.py", line 41, in calling
    return method(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^
  File "/spark_cas/spark/writing/write.py", line 272, in commit
    raise told from None
""",
)
STREAM = "[STREAM_FAILED] Query {name}[id = 8cdea330-a12a, runId = d48e1c28-8227] terminated with exception: "
COMMIT = "[PYTHON_DATA_SOURCE_ERROR] Failed to commit or abort Python data source write: "
SINK = "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform commit: "
FOREACH_BATCH = (
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. "
    f"Reason: An exception was raised by the Python Proxy. Return Message: {SHOWN}"
    "pyspark.errors.exceptions.captured.AnalysisException: "
)
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in "
    "stage 1.0 (TID 7) (127.0.0.1 executor 0): org.apache.spark.api.python.PythonException: "
)
SPARK_PREFIXES = {
    "plan": "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: ",
    "commit": COMMIT,
    "task": "An exception was thrown from the Python worker:\n",
    "stream": f"{STREAM}{SINK}",
    "task of a stream": f"{STREAM}[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ",
    "foreachBatch": f"{STREAM}{FOREACH_BATCH}{COMMIT}",
    "foreachBatch on Connect": (
        f"{STREAM}[PYTHON_EXCEPTION] [session: 2074cdf3-66c7] [userId: ] Found error inside foreachBatch Python "
        f"process: {SHOWN}pyspark.errors.exceptions.connect.AnalysisException: {COMMIT}"
    ),
    "foreachBatch on Connect 4.0": (
        f"{STREAM}Found error inside foreachBatch Python process: {SHOWN}"
        f"pyspark.errors.exceptions.connect.AnalysisException: {COMMIT}"
    ),
    "Py4J": f"An error occurred while calling o114.save.\n: org.apache.spark.SparkException: {STAGE}",
    "Connect": f"(org.apache.spark.SparkException) {STAGE}",
}
TAIL = "\n SQLSTATE: 38000\n\tat org.apache.spark.X$.x(X.scala:1)\n"
TEXT = 'partition 2: expected [17], found {"2": 19}. Do this.'


@pytest.mark.parametrize("traceback", [HIDDEN, SHOWN], ids=["hidden", "shown"])
@pytest.mark.parametrize("prefix", SPARK_PREFIXES)
def test_an_error_is_found_in_each_text_that_spark_makes_of_it(prefix: str, traceback: str):
    error = ERRORS_BY_KIND[ErrorKind.CONFLICT](TEXT)
    start = SPARK_PREFIXES[prefix].replace("{name}", "flights ") + traceback
    found = error_from_text(f"{start}spark_cas.core.errors.ConflictError: {error}{TAIL}")
    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_is_found_again(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind](TEXT)
    for start in ("", f"{SPARK_PREFIXES['commit']}spark_cas.core.errors.{type(error).__name__}: "):
        found = error_from_text(f"{start}{error}{TAIL}")
        assert type(found) is type(error)
        assert str(found) == str(error)


def test_an_error_of_a_backend_is_found_by_its_kind():
    kind = "spark_cas.log.kafka.client.client_errors.NotAvailableError"
    text = f"{SPARK_PREFIXES['task']}{kind}: [STORAGE] not permitted."
    found = error_from_text(text)
    assert type(found) is errors.StorageError
    assert found.message == "not permitted."


HOSTILE = "spark_cas.core.errors.ConflictError: [CONFLICT] partition 0: x"
FAKE_CAUSE = f"Caused by: org.apache.spark.api.python.PythonException: {SPARK_PREFIXES['commit']}{HOSTILE}"


@pytest.mark.parametrize("row", ["[CONFLICT] partition 0: x", HOSTILE, f"a\n{HOSTILE}\n{FAKE_CAUSE}"])
@pytest.mark.parametrize(
    "text",
    [
        "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected in record parsing: [{row}].",
        '[CAST_INVALID_INPUT] The value \'{row}\' of the type "STRING" cannot be cast to "INT".',
        "[USER_RAISED_EXCEPTION] {row} SQLSTATE: P0001",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `{row}` cannot be resolved.",
        'For input string: "{row}"',
        f"{SPARK_PREFIXES['task']}{SHOWN}ValueError: {{row}}",
        f"{SPARK_PREFIXES['task']}{SHOWN}ValueError: invalid literal for int() with base 10: '{{row}}'",
        f"{SPARK_PREFIXES['Py4J']}{SHOWN}ValueError: {{row}}",
        f"{SPARK_PREFIXES['Connect']}[CAST_INVALID_INPUT] The value '{{row}}'",
        f"{STREAM}[CAST_INVALID_INPUT] The value '{{row}}'",
        f"{STREAM}Found error inside foreachBatch Python process: {SHOWN}ValueError: {{row}}",
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: [MALFORMED_CSV_RECORD] {row}",
        f"{SPARK_PREFIXES['commit']}builtins.ValueError: {{row}}",
    ],
)
def test_a_row_of_the_input_is_no_error(text: str, row: str):
    assert error_from_text(text.replace("{name}", "").replace("{row}", row)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.OutOfMemoryError: Java heap space",
        "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        "[conflict] lower case",
        "CONFLICT without brackets",
        "[PROGRESS_CONFLICT] not ours",
        "org.apache.spark.SparkException: [CONFLICT] without its class",
    ],
)
def test_other_texts_hold_no_error(text: str):
    assert error_from_text(text) is None
    assert wrapped_error(text) is None


def test_a_code_at_the_start_of_another_exception_is_no_wrapped_error():
    assert wrapped_error("[CONFLICT] partition 0: x") is None


OFFSETS = st.dictionaries(st.integers(0, 2**31), st.none() | st.integers(0, 2**63))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "partition": st.integers(0),
        "row": st.integers(0),
        "offset": st.integers(0),
        "expected_offset": st.integers(0),
        "actual_offset": st.integers(0),
        "job": st.text(),
        "appended_rows": st.dictionaries(st.integers(0), st.integers(1)),
        "next_offsets": OFFSETS | st.dictionaries(st.from_regex("[A-Za-z0-9._-]+", fullmatch=True), OFFSETS),
    },
)
MESSAGES = st.lists(st.sampled_from([" ", "x", '{"partition":3}', "{}", "}", "[FENCED]"])).map("".join)


@given(message=MESSAGES, fields=FIELDS)
def test_an_error_carries_its_fields_through_its_text_and_no_quoted_value_changes_them(message: str, fields: Fields):
    error = errors.ConflictError(message, **fields)
    for text in (str(error), f"{SPARK_PREFIXES['commit']}spark_cas.core.errors.ConflictError: {error}{TAIL}"):
        found = error_from_text(text)
        assert type(found) is errors.ConflictError
        assert (found.message, found.fields) == (message, fields)


def test_the_fields_are_json_at_the_end_of_the_text():
    error = errors.ConflictError("x.", partition=3, job="a b", appended_rows={}, next_offsets={3: 9, 4: None})
    assert str(error) == (
        r'[CONFLICT] x. {"partition":3,"job":"a\u0020b","appended_rows":{},"next_offsets":{"3":9,"4":null}}'
    )


def test_the_text_is_one_line():
    error = errors.SchemaError('the value is a {"partition":3}\nb.', partition=4)
    found = error_from_text(str(error))
    assert found is not None
    assert (found.message, found.partition) == ('the value is a {"partition":3} b.', 4)


def test_another_message_keeps_the_error_and_its_other_fields():
    error = errors.MissingRowsError("x", partition=3, next_offsets={3: 9})
    found = error.with_message("y", next_offsets=None, appended_rows={})
    assert type(found) is errors.MissingRowsError
    assert (found.message, found.args, found.fields) == ("y", ("y",), {"partition": 3, "appended_rows": {}})
    assert (error.message, error.fields) == ("x", {"partition": 3, "next_offsets": {3: 9}})


def test_deep_value_at_the_end_of_a_message_is_no_field():
    text = str(errors.ConflictError('key {"a":' + "[" * 100_000))
    error = error_from_text(text)
    assert error is not None
    assert error.fields == {}
