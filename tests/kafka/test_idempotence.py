"""The guarantee that a write requests, and the one it gets if ACLs are missing or brokers are too old (KIP-192)."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from spark_cas import LogSettingsWarning
from spark_cas.core.errors import JobMismatchError, OptionError, StorageError
from spark_cas.core.guarantee import AT_LEAST_ONCE, EXACTLY_ONCE, IDEMPOTENT, OFF, REQUESTED, REQUIRED
from spark_cas.core.offsets import OffsetRange
from spark_cas.core.outcome import Appended
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka import broker_preflight as preflight_module
from spark_cas.log.kafka.append import at_least_once
from spark_cas.log.kafka.client.client_errors import NotAvailableError, NotPermittedError, on_topic, plain_error
from spark_cas.log.kafka.client.clients import TransactionalProducer
from spark_cas.log.kafka.client.sending import Reports, Sending
from spark_cas.log.kafka.settings.kafka_spec import KafkaSpec
from spark_cas.options.parse import parse_write
from spark_cas.spark.schema import EndMarkers, Mark, with_mark
from spark_cas.spark.writing import blind_write, write
from spark_cas.spark.writing.blind_write import BlindWriter
from tests.contract.blind import blindly, run_blind
from tests.kafka.clients import SECONDS, committed_values, create_topic
from tests.kafka.faulted import spec_of
from tests.kafka.proxy.frames import Api
from tests.kafka.proxy.rules import Fault, naming
from tests.kafka.test_acls import least, make_registry
from tests.support.loads import TEN, run_job
from tests.support.writing import table_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

OF_EXACTLY_ONCE = [name for name in least("t", "p") if name != "topic write"]
FRAME = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType(), metadata=Mark(1, None).metadata()),
    ]
)
ROWS = pa.RecordBatch.from_pydict({"key": [b"a"], "value": [b"a"], "partition": pa.array([0], pa.int32())})


@pytest.fixture
def spec(secured) -> KafkaSpec:
    return secured.spec(create_topic(secured.open))


def end_of(secured, spec: KafkaSpec) -> int:
    with KafkaLog(KafkaSpec(secured.open, spec.topic)) as log:
        return log.bounds(0).end_offset


@pytest.mark.parametrize("missing", least("t", "p"))
def test_required_guarantee_or_an_error_before_any_append(secured, spec, missing):
    rights = least(spec.topic, spec.prefix)
    right = rights.pop(missing)
    if missing not in ("registry create", "layouts create"):
        make_registry(secured, spec)
    secured.allow(rights.values())
    with pytest.raises(StorageError, match="this user lacks an ACL") as refused:
        planned(spec, idempotence=REQUIRED)
    assert str(right) in str(refused.value)
    assert end_of(secured, spec) == 0
    if missing == "topic write":
        return
    with KafkaLog(spec) as log:
        looked = log.preflight(idempotence=REQUESTED)
    assert looked.guarantee == IDEMPOTENT
    assert [note for note in looked.notes if str(right) in note and "exactly once is not available" in note]


def planned(spec: KafkaSpec, **given: str):
    """Return the writer of a frame, as Spark gets it for a user with the current ACLs."""
    options = parse_write({"kafka.bootstrap.servers": "host:9092", "topic": spec.topic, **given})
    markers: EndMarkers = "partition" if options.atomic else "none"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LogSettingsWarning)
        return write.plan_write(replace(options, spec=spec), with_mark(FRAME, Mark(1, None, end_markers=markers)))


def test_with_only_write_access_the_guarantee_is_reported(secured, spec, tmp_path, monkeypatch):
    secured.allow([on_topic("Write", spec.topic)])
    report = tmp_path / "report.json"
    writer = planned(spec, idempotence=REQUESTED, expectedOffsets="none", report=str(report))
    assert isinstance(writer, BlindWriter)
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    message = writer.write(iter([ROWS]))
    writer.commit([message])
    assert [(each.guarantee, each.progress.rows) for each in message.results] == [(IDEMPOTENT, 1)]
    assert '"guarantee":"idempotent"' in report.read_text()
    with KafkaLog(spec) as log:
        assert log.preflight(idempotence=OFF).guarantee == AT_LEAST_ONCE
        run_blind(log, {0: ["b"]})
    assert committed_values(secured.open, spec.topic) == ["a", "b"]


@pytest.mark.parametrize("given", [{}, {"expectedOffsets": "end"}, {"atomic": "true"}, {"compare": "key"}])
def test_a_condition_is_never_dropped_for_want_of_a_right(secured, spec, given):
    secured.allow([on_topic("Write", spec.topic)])
    options = {"expectedOffsets": "none", **given} if given else {}
    with pytest.raises(OptionError, match="is a condition, and a write that is idempotent"):
        planned(spec, idempotence=REQUESTED, **options)
    assert end_of(secured, spec) == 0


def unrecorded(log, *jobs):
    """Return the name of a job whose registry partition has no entries of these jobs."""

    def number(job):
        return log._registry.of(f"{log.topic}/plan/{job}").at.partition

    taken = {number(job) for job in jobs}
    return next(job for job in map(str, range(1000)) if number(job) not in taken)


def test_exactly_once_job_continues_so_or_fails(secured, spec):
    rights = least(spec.topic, spec.prefix)
    secured.allow(rights.values())
    with KafkaLog(spec) as log:
        run_job(log, "complete", TEN, expected="none")
        assert log.preflight(idempotence=REQUESTED).guarantee == EXACTLY_ONCE
        plan = log.plan("complete")
        assert plan is not None
        log.record_plan(replace(plan, job="begun"))
        elsewhere = unrecorded(log, "complete", "begun")
    end = end_of(secured, spec)
    del rights["ids"]
    secured.allow(rights.values())
    asked = {"idempotence": REQUESTED, "expectedOffsets": "none"}
    with pytest.raises(JobMismatchError, match="job 'begun' was begun exactly once"):
        planned(spec, **asked, job="begun")
    assert isinstance(planned(spec, **asked, job="new"), BlindWriter)
    del rights["registry read"]
    secured.allow(rights.values())
    # The partition of this job's entry is empty, and the client can detect that without the ACL to read.
    assert isinstance(planned(spec, **asked, job=elsewhere), BlindWriter)
    with pytest.raises(StorageError, match="job 'begun' may have been begun exactly once, which cannot be seen"):
        planned(spec, **asked, job="begun")
    assert isinstance(planned(spec, **asked), BlindWriter)
    assert end_of(secured, spec) == end


def test_brokers_that_are_too_old_do_not_give_it():
    """The test does not run such brokers. It uses their error codes, and the topic id that they report."""
    for code in (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE):
        assert isinstance(plain_error(KafkaException(KafkaError(code)), "trying"), NotAvailableError)
    with pytest.raises(NotAvailableError):
        preflight_module._require_id(SimpleNamespace(name="flights", topic_id="A" * 22))  # type: ignore[arg-type]
    busy = plain_error(KafkaException(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)), "trying")
    assert not isinstance(busy, NotAvailableError | NotPermittedError)


@pytest.mark.parametrize("guarantee", [IDEMPOTENT, AT_LEAST_ONCE])
def test_a_request_whose_reply_was_lost(monkeypatch, proxied, proxied_topic, guarantee):
    """The client sends the request again. The broker recognizes it only from the idempotent producer."""
    spec = spec_of(proxied.bootstrap, proxied_topic)
    with KafkaLog(spec) as log:
        lost = proxied.proxy.add(Fault.DROP_RESPONSE, Api.PRODUCE, where=naming(proxied_topic))
        (result,) = run_blind(log, {0: ["a", "b"]}, guarantee)
        lost.reached.wait(SECONDS)
    found = committed_values(proxied.direct, proxied_topic)
    assert found == ["a", "b"] * (1 if guarantee == IDEMPOTENT else 2)
    assert (result.progress.rows, result.guarantee) == (2, guarantee)


@pytest.mark.parametrize("guarantee", [IDEMPOTENT, AT_LEAST_ONCE])
def test_permanently_rejected_records_fail_the_task_once(broker, monkeypatch, guarantee):
    topic = create_topic(broker.bootstrap, cleanup_policy="compact")
    spec = KafkaSpec(broker.bootstrap, topic)
    writer = planned(spec, idempotence=OFF, maxRecordsPerChunk="1")
    assert isinstance(writer, BlindWriter)
    writer.task = replace(writer.task, guarantee=guarantee)
    monkeypatch.setattr(blind_write, "task_number", lambda: 0)
    monkeypatch.setattr(
        at_least_once, "require_acceptable", lambda *_: None
    )  # as without the ACL to read the settings
    no_key = ROWS.set_column(0, "key", pa.array([None], pa.binary()))
    message = writer.write(iter([ROWS, no_key, ROWS]))
    with pytest.raises(StorageError, match=r"without key\. .*has appended 1 rows for certain"):
        writer.commit([message])
    assert committed_values(broker.bootstrap, topic) == ["a"]


def test_an_acknowledgement_without_an_offset_is_placed_between_the_ends(monkeypatch, broker, topic):
    """A client reports a duplicate sequence number in this way: as a success without an offset."""
    take = Reports.take
    with KafkaLog(KafkaSpec(broker.bootstrap, topic)) as log:
        blindly(log, "a")
        monkeypatch.setattr(Reports, "take", lambda reports, count, *_: take(reports, count, -1, -1))
        appended = blindly(log, "b", "c")
    assert isinstance(appended, Appended)
    assert (appended.range, appended.has_offset) == (OffsetRange(1, 3), False)


def test_no_writer_is_fenced(broker, topic):
    spec = KafkaSpec(broker.bootstrap, topic)
    holder = TransactionalProducer(spec, spec.id_of_partition(0, None))
    holder.init(SECONDS)
    with KafkaLog(spec) as log:
        blindly(log, "a")
        holder.begin()
        sending = Sending(holder, TopicPartition(topic, 0), table_of("b"), 0)
        blindly(log, "c")
        assert sending.arrive(SECONDS)
        holder.commit()
    holder.close()
    assert sorted(committed_values(broker.bootstrap, topic)) == ["a", "b", "c"]
