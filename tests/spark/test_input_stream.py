"""A worker makes the system acknowledge Spark's data immediately, so that the JVM does not delay rows.

Tested on real sockets and in a real task.
"""

import os
import socket
from functools import partial

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from spark_cas.options.parse import parse_read, parse_read_stream
from spark_cas.spark.accelerators.input_stream import stream_from_jvm
from spark_cas.spark.accelerators.quick_ack import acknowledge, acknowledged
from spark_cas.spark.reading.read import RecordsReader, ViewReader
from spark_cas.spark.reading.stream_read import RecordsStreamReader
from spark_cas.spark.writing.partition_by_key import RowPartitioner

OPTIONS = {"path": "/log"}


def delays(connection):
    """Return whether the system delays the acknowledgement of received data."""
    return not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)


@pytest.fixture
def connection():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as jvm,
        server.accept()[0] as worker,
    ):
        # After it has sent a reply, the system delays the acknowledgement of the next data.
        jvm.sendall(b"question")
        worker.recv(8)
        worker.sendall(b"answer")
        yield worker


def test_received_data_is_acknowledged_immediately(connection):
    with os.fdopen(os.dup(connection.fileno()), "rb") as stream:
        assert delays(connection)
        acknowledge(stream)
        assert not delays(connection)
        connection.sendall(b"it is still open")


def test_where_there_is_no_connection_nothing_is_done(tmp_path):
    (tmp_path / "file").touch()
    with (tmp_path / "file").open("rb") as stream:
        acknowledge(stream)
        assert stream.read() == b""
    acknowledge(None)


@pytest.mark.spark
def test_task_acknowledges_before_its_first_row(spark):
    read, stream = parse_read(OPTIONS), parse_read_stream(OPTIONS)
    told = [
        vars(RowPartitioner(4).as_function())["func"],
        RecordsReader(read, StructType()),
        RecordsStreamReader(stream, StructType()),
        ViewReader(read, StructType()),
    ]
    begins = [partial(cloudpickle.loads, cloudpickle.dumps(each)) for each in told]
    begins.append(partial(_first_row))

    def look(batches):
        for _ in batches:
            stream = stream_from_jvm()
            assert stream is not None
            with socket.socket(fileno=os.dup(stream.fileno())) as connection:
                found = [_delays_before_and_after(begin, connection) for begin in begins]
            yield pa.RecordBatch.from_pydict(
                {"before": [each[0] for each in found], "after": [each[1] for each in found]}
            )

    rows = spark.range(1).mapInArrow(look, "before boolean, after boolean").collect()
    assert [tuple(each) for each in rows] == [(True, False)] * len(begins)


def _first_row():
    next(acknowledged(iter(["batch"])))


def _delays_before_and_after(begin, connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    before = delays(connection)
    begin()
    return before, delays(connection)
