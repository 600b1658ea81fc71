"""The places where a report can be written, and the files that it must not replace."""

import errno
import os
import threading
from pathlib import Path

import pytest

from spark_cas.options import report_file


@pytest.fixture
def own_output(tmp_path):
    """The path of a descriptor that acts as the standard output, and its file."""
    with (tmp_path / "out").open("w") as out:
        link = tmp_path / "stdout"
        link.symlink_to(f"/proc/self/fd/{out.fileno()}")
        yield f"/proc/self/fd/{out.fileno()}", tmp_path / "out"


def put(file, text):
    assert report_file.may_be_put(str(file))
    report_file.clear(str(file))
    report_file.put(str(file), text)


def test_a_report_takes_the_place_of_an_earlier_one(tmp_path):
    file = tmp_path / "report.json"
    for text in ("one", "two"):
        put(file, text)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["two"]


def test_behind_a_link_is_the_report(tmp_path):
    link, file = tmp_path / "link", tmp_path / "report.json"
    file.write_text("earlier")
    link.symlink_to(file)
    put(link, "now")
    assert link.is_symlink()
    assert file.read_text() == "now"


def test_ones_own_output_stays_what_it_is(own_output):
    name, out = own_output
    put(name, "now")
    assert Path(name).is_symlink()
    assert out.read_text() == "now"


def test_a_pipe_is_written_to(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    put(pipe, "now")
    reader.join(10)
    assert read == ["now"]
    assert pipe.is_fifo()


def test_a_file_that_cannot_be_replaced_is_written_where_it_is(tmp_path, monkeypatch):
    """For example a mount, or a file in a read-only folder. The test simulates the error: root may write there."""
    file = tmp_path / "report.json"
    file.write_text("earlier")
    unlink = Path.unlink

    def only_others(path, *, missing_ok=False):
        if path == file:
            raise OSError(errno.EBUSY, "busy")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", only_others)
    monkeypatch.setattr(Path, "replace", lambda _, __: only_others(file))
    report_file.clear(str(file))
    assert file.read_text() == ""
    report_file.put(str(file), "now")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["now"]


@pytest.mark.parametrize("file", ["", "missing/report.json"])
def test_neither_a_folder_nor_a_file_in_none_is_one(tmp_path, file):
    assert not report_file.may_be_put(str(tmp_path / file))
