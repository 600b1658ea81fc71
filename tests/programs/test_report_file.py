"""The places where a report can be written, and the files that it must not replace."""

import errno
import os
import threading
from pathlib import Path

import pytest

from spark_cas.options import report_file
from spark_cas.programs.bulk_load import parse_arguments


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


OUTPUTS = {
    "report": ["--report", "in/b.jsonl"],
    "new report": ["--report", "in/sub/new.json"],
    "page": ["--report", "in/new.html"],
    "report through a link": ["--report", "link/b.jsonl"],
    "report that is linked from the input": ["--report", "linked.jsonl"],
    "report in a linked folder": ["--report", "other/new.json"],
    "bad rows": ["--bad-rows", "in/b.jsonl"],
    "log for bad rows": ["--bad-rows", "in/sub"],
    "log": ["--log", "in/logs/new"],
    "log that is the input": ["--log", "in"],
    "URL of a log": ["--log", "file:{cwd}/in/a%20log"],
    "metrics": ["--metrics", "file:{cwd}/in/load.prom"],
    "metrics as an option": ["--log-option", "Metrics=file:{cwd}/in/load.prom"],
    "report as an option": ["--log-option", "report=in/new.json"],
}


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("in/a.jsonl", "in/b.jsonl", "in/sub/c.jsonl", "in/_d.jsonl", "other/e.jsonl", "linked.jsonl"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("{}\n")
    Path("link").symlink_to("in")
    Path("in/to_other").symlink_to(tmp_path / "other")
    Path("in/to_parent").symlink_to(tmp_path / "in")
    Path("in/f.jsonl").symlink_to(tmp_path / "linked.jsonl")


def parsed(paths, output):
    log = [] if "--log" in output else ["--log", "log"]
    argv = ["--input", *paths, "--format", "json", "--value-json", *log, *output]
    return parse_arguments([each.replace("{cwd}", str(Path.cwd())) for each in argv], "bulk_load.py")


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_output_in_the_input_is_rejected(inputs, capsys, output):
    with pytest.raises(SystemExit) as exit_code:
        parsed(["in"], output)
    assert exit_code.value.code == 2
    assert "the path is part of --input" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "outputs"),
    [
        ("in/*.jsonl", ["in/b.jsonl", "in/new.jsonl", "link/new.jsonl"]),
        ("in/{a,new}.jsonl", ["in/new.jsonl"]),
        ("*", ["in/sub/new.jsonl", "new.jsonl"]),
        ("file:{cwd}/in/b.jsonl", ["in/b.jsonl"]),
        ("new.jsonl", ["new.jsonl"]),
    ],
)
def test_output_that_matches_a_pattern_of_the_input_is_rejected(inputs, path, outputs):
    for each in outputs:
        with pytest.raises(SystemExit):
            parsed([path], ["--report", each])


@pytest.mark.parametrize("path", ["in", "in/*.jsonl", "in/a.jsonl", "s3a://bucket/in"])
def test_other_output_is_accepted(inputs, path):
    for each in ("new.json", "in/_report.json", "in/.report.json"):
        parsed([path], ["--report", each])
    for output in (
        ["--log", "in/_log"],
        ["--bad-rows", "in2"],
        ["--metrics", "http://in:9091"],
        ["--log", "s3://b/in"],
    ):
        parsed([path], output)
    if path != "in":
        parsed([path], ["--report", "in/sub/new.jsonl"])
        parsed([path], ["--log", "in/log"])
