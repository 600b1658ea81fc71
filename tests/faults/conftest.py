"""Fixtures of the fault tests: one driver for all modules, and failpoints and a log for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.failpoints import Failpoints
from tests.faults.rig import Driver
from tests.marked import end_marked

pytest.register_assert_rewrite("tests.faults.checker")


@pytest.fixture(scope="session")
def all_failpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failpoints]:
    failpoints = Failpoints(tmp_path_factory.mktemp("rig") / "failpoints")
    yield failpoints
    end_marked(failpoints.environment)


@pytest.fixture
def failpoints(all_failpoints: Failpoints) -> Failpoints:
    all_failpoints.reset()
    return all_failpoints


@pytest.fixture(scope="session")
def driver(all_failpoints: Failpoints, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver in local mode. The process is restarted after a test that killed it."""
    with Driver(tmp_path_factory.mktemp("rig") / "driver", all_failpoints) as started:
        yield started


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"
