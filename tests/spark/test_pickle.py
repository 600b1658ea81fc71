"""Objects that cross process boundaries hold plain values only, and survive a round trip."""

import dataclasses
import pickle
import types
import typing
from dataclasses import replace

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from spark_cas.core.errors import ERRORS_BY_KIND
from spark_cas.core.load_locks import LoadLock
from spark_cas.core.micro_batch import Batch
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.partitioner import Placement
from spark_cas.core.plan import BatchProgress, Completion, Layout, PartitionResult, Plan, Progress
from spark_cas.log.load.cancelling import Rejection
from spark_cas.log.open import parse_address
from spark_cas.log.spec import LogSpec
from spark_cas.options.parse import parse_write, parse_write_stream
from spark_cas.options.read_range import ReadRange, Splitting, TopicPartition, TriggerLimits
from spark_cas.options.request import ReadRequest, Selection, StreamRequest
from spark_cas.spark.reading.read import RecordsPartition, RecordsReader, ViewPartition, ViewReader
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.schema import OFFSETS, RECORDS
from spark_cas.spark.source import ConditionalLogSource
from spark_cas.spark.writing.blind_write import BlindTask, BlindWriter
from spark_cas.spark.writing.report import TaskReport
from spark_cas.spark.writing.stream_write import BatchReport, BatchTask, BatchWriter, StreamWriter
from spark_cas.spark.writing.topics_write import TopicReport
from spark_cas.spark.writing.verify import Hashed
from spark_cas.spark.writing.write import ConditionalLogWriter, WriteTask

SPEC = LogSpec.parse("/data/logs/flights", {"aws_region": "x"})
TOPIC = parse_address("kafka://host:9092/flights", {"retry.backoff.ms": "5"})
FLIGHTS = TopicPartition("flights", 0)
SELECTION = Selection(SPEC, ("flights",), assigned=(FLIGHTS,))
PLAN = Plan("load-1", "log", 0, (0, None), (0, 0))
PROGRESS = Progress("load-1", 0, 1, "ab", 0, 1, 1, 0, True, 5, "run/0")
RESULT = PartitionResult(PROGRESS, 0, 0)
COMPLETION = Completion("load-1", "log", 0, (RESULT,), 5)
LOAD_LOCK = LoadLock("load-1", "run", ((0, 2),), "a process", 5, ("load-0",))
REQUEST = parse_write({"path": SPEC.url, "store.aws_region": "x", "job": "load-1", "expectedOffsets": "none"})
TASK = WriteTask(REQUEST, PLAN, "run", (4, 5), (1, 0), COMPLETION, "partition", LOAD_LOCK)
BATCH = BatchTask(
    REQUEST,
    placement=Placement("crc32", named=True),
    planning_ms=(4, 5),
    layout=Layout("log", 0, 2),
    plan=PLAN,
    ledger=(PROGRESS,),
    run=None,
    order_by=("key",),
    end_markers="partition",
)
BLIND = BlindTask(replace(REQUEST, spec=TOPIC), Layout("log", 2, 2), "run", (4, 5), "idempotent", "none")
IN_BATCH = replace(PROGRESS, complete=False, batch=BatchProgress("query", 5, 1, "ab", complete=True))
REPORT = TaskReport((RESULT,), (Hashed(0, 1, "ab"),), Rejection("CONFLICT", "text", (0,)), ((0, 1),))

VALUES = [
    SPEC,
    TOPIC,
    REQUEST,
    TASK,
    BATCH,
    BLIND,
    REPORT,
    TopicReport("flights", REPORT),
    SELECTION,
    RecordsPartition("log", ((FLIGHTS, OffsetRange(0, 5)), (FLIGHTS, OffsetRange(7, 9)))),
    BatchReport(
        (PartitionResult(IN_BATCH, 0, 0),), job="load-1", batch=Batch("query", 5), run="run/5", planning_ms=(4, 5)
    ),
    ViewPartition((("flights", "flights"), (0, True), (((1, 5),), None))),
]
READ = ReadRequest(SELECTION, ReadRange(), Splitting(), "offsets")
STREAM = StreamRequest(SELECTION, ReadRange(), Splitting(), trigger=TriggerLimits(5), whole_loads=True)
HOLDERS = [
    ConditionalLogSource({"path": "/data/logs/flights"}),
    RecordsStreamReader(STREAM, RECORDS),
    RecordsReader(READ, RECORDS),
    ViewReader(READ, OFFSETS),
    ConditionalLogWriter(TASK),
    BlindWriter(BLIND),
    StreamWriter(BATCH),
    BatchWriter(replace(BATCH, plan=None)),
]
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PLAIN = {str, int, float, bool, bytes, type(None)}


def again(value):
    """Pickle and unpickle a value in both ways that Spark uses."""
    assert type(pickle.loads(pickle.dumps(value))) is type(value)  # noqa: S301 - made here
    return pickle.loads(cloudpickle.dumps(value))  # noqa: S301 - made here


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_equal_after_a_round_trip(value):
    assert again(value) == value


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_holders_hold_the_same_after_a_round_trip(holder):
    assert vars(again(holder)) == vars(holder)


@pytest.mark.parametrize("error", ERRORS_BY_KIND.values())
def test_errors_survive(error):
    found = again(error("the fix"))
    assert (type(found), found.message, str(found)) == (error, "the fix", f"[{error.kind}] the fix")


def kinds_in(kind):
    """Return all types that occur in the type of a field."""
    origin = typing.get_origin(kind)
    if origin in (tuple, typing.Union, types.UnionType):
        return set().union(*(kinds_in(each) for each in typing.get_args(kind) if each is not ...))
    if origin is typing.Literal:
        return {type(each) for each in typing.get_args(kind)}
    if dataclasses.is_dataclass(kind):
        assert vars(kind)["__dataclass_params__"].frozen, f"{kind} can be changed"
        return set().union(*(kinds_in(hint) for hint in typing.get_type_hints(kind).values()))
    return {kind}


@pytest.mark.parametrize("parse", [parse_write, parse_write_stream])
def test_task_contains_a_secret_once(parse):
    login = f'{LOGIN_MODULE} required username="u" password="hunter2";'
    sasl = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login}
    request = parse({"kafka.bootstrap.servers": "host:9092", "topic": "flights", **sasl})
    assert pickle.dumps(replace(BLIND, request=request)).count(b"hunter2") == 1


def test_every_field_is_of_a_plain_type():
    sent = [type(value) for value in VALUES]
    assert set().union(*(kinds_in(kind) for kind in sent)) <= PLAIN
    with pytest.raises(AssertionError):
        kinds_in(dataclasses.make_dataclass("Loose", [("x", int)]))
    assert kinds_in(dataclasses.make_dataclass("Odd", [("x", list[int])], frozen=True)) - PLAIN


def test_every_message_and_partition_is_among_them():
    sent = {type(value) for value in VALUES}
    ours = {
        kind
        for base in (InputPartition, WriterCommitMessage)
        for kind in base.__subclasses__()
        if kind.__module__.startswith("spark_cas")
    }
    assert ours
    assert ours <= sent
