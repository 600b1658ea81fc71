import inspect
import pickle

import pytest

from spark_cas.core import errors
from spark_cas.core.errors import ERRORS_BY_KIND, ConditionalLogError, ErrorKind, InputError, error_from_text

TREE = """
ConditionalLogError
  RefusedError
    ConflictError CONFLICT
    TruncatedError TRUNCATED
    FencedError FENCED
    ProgressLostError PROGRESS_LOST
    LayoutChangedError LAYOUT_CHANGED
    GrantedError GRANTED
    NotLeaderError NOT_LEADER
    VersionMismatchError VERSION_MISMATCH
  UnknownOutcomeError UNKNOWN_OUTCOME
  MayBeStaleError MAY_BE_STALE
  InputError
    OptionError OPTION
    SchemaError SCHEMA
    ClaimError CLAIM
    RecordTooLargeError RECORD_TOO_LARGE
    NotRoutedError NOT_ROUTED
    InputChangedError INPUT_CHANGED
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
    StorageError STORAGE
      NotTakenError
      TransactionEndedError
      UndecidedError
"""

KINDS = [pytest.param(kind, id=kind) for kind in ErrorKind]


def drawn(error: type[ConditionalLogError], depth: int = 0) -> list[str]:
    kind = f" {error.kind}" if "kind" in vars(error) else ""
    lines = [f"{'  ' * depth}{error.__name__}{kind}"]
    for each in error.__subclasses__():
        if each.__module__ == ConditionalLogError.__module__:  # a backend may tell its own apart
            lines += drawn(each, depth + 1)
    return lines


def test_the_tree_is_the_documented_one():
    assert drawn(ConditionalLogError) == TREE.strip().splitlines()


def test_the_module_docstring_shows_the_whole_tree():
    names = [line.split()[0] for line in TREE.strip().splitlines()]
    shown = [word for word in (inspect.getdoc(errors) or "").split() if word in names]
    assert shown == names


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
    error = ERRORS_BY_KIND[kind]("partition 3: naïve “text” [FENCED] inside")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert (again.args, again.message, str(again)) == (error.args, error.message, str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_input_errors_are_value_errors_and_no_others_are(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]
    assert issubclass(error, ValueError) == issubclass(error, InputError)


SPARK_TEXT = """\
An error occurred while calling o114.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/data/x. \
SQLSTATE: 58030
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: [PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):
  File "/spark_cas/log/loading.py", line 107, in _append
    raise error_of(outcome, self._claim.partition)
spark_cas.core.errors.{name}: {text}

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:642)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_found_again_in_what_spark_shows(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]('partition 2: expected [17], found {"2": 19}. Do this.')
    found = error_from_text(SPARK_TEXT.format(name=type(error).__name__, text=error))
    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_found_behind_spark_s_own_token_on_the_same_line(kind: ErrorKind):
    error = ERRORS_BY_KIND[kind]("what to do.")
    found = error_from_text(f"[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source wrote: {error}\n\tat x")
    assert type(found) is type(error)
    assert str(found) == str(error)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.lang.OutOfMemoryError: Java heap space",
        "[PATH_NOT_FOUND] Path does not exist: file:/x.",
        "[conflict] lower case",
        "CONFLICT without brackets",
        "[PROGRESS_CONFLICT] not ours",
    ],
)
def test_other_texts_hold_no_error(text: str):
    assert error_from_text(text) is None
