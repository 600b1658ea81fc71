"""A short run on each backend, and a minute with three seeds in the long suite. `make chaos` runs any seed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_cas.log.open import open_log
from tests.chaos import other_attempts
from tests.chaos.__main__ import main
from tests.chaos.aborting import AbortWhole
from tests.chaos.expanding import Expand
from tests.chaos.nemesis import FAULT
from tests.chaos.run import NOT_CALM, finished
from tests.chaos.side_by_side import run_side_by_side
from tests.chaos.world import World
from tests.history.operations import FAIL, INFO, OK, Operation, read_history
from tests.history.recorder import Recorder
from tests.long import full
from tests.support.memory_log import MemoryLog
from tests.support.writing import append_foreign

pytestmark = pytest.mark.timeout(400)

SHORT, LONG = 25, 60
"""Seconds of a run: three storms of faults, or six."""
MEMORY_SECONDS = 15
"""Two storms, in which all types of faults of this backend occur."""


def run(backend: str, chosen: tuple[Sequence[int], int], folder: Path) -> None:
    """Run chaos from the command line; require that all properties hold and each scheduled fault type occurred.

    The chosen seeds run in parallel, for so many seconds.
    """
    left = run_side_by_side(backend, *chosen, folder)
    faults = [each for history in map(read_at, left) for each in history if each.name == FAULT]
    assert {each.arguments["kind"] for each in faults if each.outcome == OK} == {
        each.arguments["kind"] for each in faults
    }


def read_at(left: Path) -> list[Operation]:
    """Return the history of a run, and require that it is not empty."""
    history = read_history(left / "history")
    assert any(each.name == "append" and each.outcome == OK for each in history)
    assert any(each.name == "read" and each.outcome == OK and each.result["seen"]["0"][1] for each in history)
    assert any(each.name == "fault" and each.outcome == OK for each in history)
    assert "verdict: no violation" in (left / "README.md").read_text()
    page = (left / "timeline.html").read_text()
    assert all(f">{name}</text>" in page for name in ("w1", "r1", "expand"))
    assert "http" not in page.replace("http ", "")
    found = [json.loads(line) for file in left.glob("records/*.jsonl") for line in file.read_text().splitlines()]
    assert found
    return history


@pytest.mark.parametrize("last", [(FAIL, {"kind": "CONFLICT"}), (INFO, {"kind": "CHUNK_DAMAGED"})])
def test_another_attempt_ends_the_load_that_it_began(tmp_path, monkeypatch, last):
    """An atomic load that no client completes blocks all others for 15 minutes."""
    replies = [(INFO, {"kind": "LOST"}), (INFO, {"kind": "STORAGE"}), last]
    world = World(tmp_path, "", pace=0.001)
    world.history.mkdir()
    monkeypatch.setattr(other_attempts, "ask", lambda *_: replies.pop(0))
    with Recorder(world.history_of("w1"), "w1") as writer, Recorder(world.history_of("a1"), "a1") as recorder:
        writer.start("append", {"job": "w1-2"})
        other_attempts.OtherAttempts(MemoryLog(), world, recorder, 1).run(lambda: not replies)
    found = [each.outcome for each in read_history(world.history) if each.process == "a1"]
    assert found == [INFO, INFO, last[0]]


def test_an_expansion_that_cannot_be_finished_is_a_violation(tmp_path):
    def open_():
        return open_log(str(tmp_path / "log"))

    with open_() as log:
        log.create(1)
        append_foreign(log, 0, "a")
        log.begin_expansion(log.layout(), 2)
    [chunk] = tmp_path.rglob("*.parquet")
    chunk.write_bytes(b"")
    [found] = finished(Expand(open_), AbortWhole(tmp_path, open_))
    assert found.number == NOT_CALM
    assert "cannot be finished" in found.told


@pytest.mark.parametrize("chosen", [((1,), MEMORY_SECONDS), *full(((1, 2, 3), LONG))])
def test_memory_keeps_its_promises(tmp_path, chosen):
    run("memory", chosen, tmp_path)


@pytest.mark.parametrize("chosen", [((1,), SHORT), *full(((1, 2, 3), LONG))])
def test_a_directory_keeps_its_promises(tmp_path, chosen):
    run("directory", chosen, tmp_path)


@pytest.mark.s3
@pytest.mark.parametrize("chosen", [((421,), SHORT), *full(((1, 2, 3), LONG))])
def test_an_object_store_keeps_its_promises(tmp_path, chosen):
    """In seed 421, all types of faults occur but one. Only one fault of the server can be active at a time."""
    run("store", chosen, tmp_path)


@pytest.mark.s3
@pytest.mark.full
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("seeds", [(1,), (2, 3)])
def test_a_gateway_with_a_folder_keeps_its_promises(tmp_path, seeds):
    """The first run may build the gateway."""
    run("store-versity", (seeds, LONG), tmp_path)


@pytest.mark.kafka
@pytest.mark.parametrize("chosen", [((92,), SHORT), *full(((4,), LONG), ((2,), LONG), ((3,), LONG))])
def test_three_brokers_keep_their_promises(tmp_path, chosen):
    """In one storm brokers are killed, in another frozen.

    Only one is faulty at a time, and a start takes a whole storm.
    """
    run("kafka", chosen, tmp_path)


def test_a_folder_with_a_run_in_it_is_not_written_over(tmp_path, capsys):
    (tmp_path / "memory-1").mkdir()
    (tmp_path / "memory-1" / "README.md").touch()
    with pytest.raises(SystemExit):
        main(["--backend", "memory", "--into", str(tmp_path)])
    assert "holds a run already" in capsys.readouterr().err
