"""Helpers for tests of readers: files as a listing returns them, and rows in order."""

from contextlib import contextmanager

import pytest

from spark_cas.core.errors import UnreadableInputError
from spark_cas.core.input_list import InputFile
from spark_cas.programs.errors import UsageError, plain_error
from spark_cas.programs.input.parts import FILE, POSITION
from spark_cas.programs.input.spark_files import whole_file_settings


def write_file(path, data):
    """Write a file, and return it as a listing does."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(data)
    return InputFile(f"file:{path}", len(data), 0)


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
