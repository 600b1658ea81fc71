"""Helpers for tests of readers: files as a listing returns them, and rows in order."""

from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from spark_cas.core.errors import UnreadableInputError
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.input.parts import FILE, POSITION
from spark_cas.programs.input.text_files import whole_file_settings


@dataclass(frozen=True)
class File:
    path: str
    size: int


def write_file(spark, path, data):
    """Write a file, and return it as a listing of Hadoop does."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)
    return File(spark._jvm.org.apache.hadoop.fs.Path(f"file:{path}").toUri().toString(), len(data))


@contextmanager
def settings(spark, values):
    """Apply settings to a session within the block."""
    before = {name: spark.conf.get(name, None) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def rows_of(spark, files, make_frame):
    """Return the rows of a frame in the order of the files, without their positions."""
    with settings(spark, whole_file_settings(files, 2)):
        frame = make_frame()
        rows = frame.orderBy(FILE, POSITION).collect()
    places = [(row[FILE], row[POSITION]) for row in rows]
    assert len(set(places)) == len(places)
    columns = [name for name in frame.columns if name not in (FILE, POSITION)]
    return [tuple(row[name] for name in columns) for row in rows]


def message_of(read):
    """Return the message of the error that ends a read, as a driver finds it."""
    with pytest.raises(Exception) as raised:
        read()
    found = plain_error(raised.value)
    assert isinstance(found, UnreadableInputError | UsageError), raised.value
    return str(found)
