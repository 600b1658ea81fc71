"""Seeds of a few seconds on each backend; the long ones are marked, and `make chaos` runs any."""

import json
from pathlib import Path

import pytest

from spark_cas.testing.history import OK, Operation, read_history
from tests.chaos.__main__ import main
from tests.long import full

pytestmark = pytest.mark.timeout(400)


def run(backend: str, seed: int, seconds: int, *, folder: Path) -> list[Operation]:
    """Run chaos as a person does; all has to be as promised, and something has to have happened."""
    code = main(["--backend", backend, "--seed", str(seed), "--seconds", str(seconds), "--into", str(folder)])
    [left] = folder.iterdir()
    assert code == 0, (left / "violations.txt").read_text()
    history = read_history(left / "history")
    assert any(each.name == "append" and each.outcome == OK for each in history)
    assert any(each.name == "read" and each.outcome == OK and each.result["seen"]["0"][1] for each in history)
    assert any(each.name == "fault" and each.outcome == OK for each in history)
    assert "verdict: as promised" in (left / "README.md").read_text()
    page = (left / "timeline.html").read_text()
    assert all(f">{name}</text>" in page for name in ("w1", "r1", "expand"))
    assert "http" not in page.replace("http ", "")
    found = [json.loads(line) for file in left.glob("records/*.jsonl") for line in file.read_text().splitlines()]
    assert found
    return history


@pytest.mark.parametrize("chosen", [(1, 6), *full((2, 60), (3, 60), (4, 60))])
def test_memory_keeps_its_promises(chosen, tmp_path):
    run("memory", *chosen, folder=tmp_path)


@pytest.mark.parametrize("chosen", [(1, 12), *full((2, 60), (3, 60), (4, 60))])
def test_a_directory_keeps_its_promises(chosen, tmp_path):
    run("directory", *chosen, folder=tmp_path)


@pytest.mark.s3
@pytest.mark.parametrize("chosen", [(1, 12), *full((2, 60), (3, 60), (4, 60))])
def test_an_object_store_keeps_its_promises(chosen, tmp_path):
    run("store", *chosen, folder=tmp_path)


@pytest.mark.kafka
@pytest.mark.parametrize("chosen", [(2, 15), *full((3, 60), (4, 60), (5, 60))])
def test_three_brokers_keep_their_promises(chosen, tmp_path):
    run("kafka", *chosen, folder=tmp_path)


def test_a_folder_with_a_run_in_it_is_not_written_over(tmp_path, capsys):
    (tmp_path / "memory-1").mkdir()
    (tmp_path / "memory-1" / "README.md").touch()
    with pytest.raises(SystemExit):
        main(["--backend", "memory", "--into", str(tmp_path)])
    assert "holds a run already" in capsys.readouterr().err
