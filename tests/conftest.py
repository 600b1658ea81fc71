"""Shared fixtures: a broker, Spark, and the effort of property tests (HYPOTHESIS_PROFILE: default, nightly)."""

import os
import signal
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from spark_cas.log import timing
from spark_cas.log.kafka.accelerators import librdkafka
from spark_cas.log.kafka.client import tokens
from tests.jvms import INTERPRETED, OPTIONS
from tests.kafka.authenticating import AWS_USER, authenticating_broker
from tools.kafka_broker import KafkaBroker
from tools.ports import held_ports

ROOT = Path(__file__).parents[1]
QUIET = ROOT / "tests" / "spark" / "log4j2.properties"
MEMORY = "/dev/shm"  # noqa: S108 (pytest and tempfile choose unique names in it)
MEMORY_BYTES = 4 << 30
"""The free space that all lanes together may need."""

# With rewriting, failed assertions show the compared values, as in a test file.
pytest.register_assert_rewrite(
    "tests.contract", "tests.support.loads", "tests.support.raising", "tests.support.writing"
)

# A shell starts background jobs with SIGINT ignored, and the programs that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Logs and brokers sync thousands of small files, which takes 10 ms for each on a disk, and no time in memory.
with suppress(OSError):
    memory = os.statvfs(MEMORY)
    is_usable = memory.f_bavail * memory.f_frsize >= MEMORY_BYTES and not memory.f_flag & os.ST_NOEXEC
    if is_usable and "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK):
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None  # read the variable again

os.environ.setdefault("SPARK_SUBMIT_OPTS", OPTIONS)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1")

# No deadline anywhere: the load of the machine is not a property of the code. Each test has a timeout. The explain
# phase traces each line (before Python 3.12), and then times out before it has found a short example.
PHASES = [each for each in Phase if each is not Phase.explain]
settings.register_profile("default", max_examples=25, deadline=None, print_blob=True, phases=PHASES)
settings.register_profile("nightly", max_examples=5000, deadline=None, print_blob=True, phases=PHASES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption(
        "--one-by-one",
        action="store_true",
        help="pass records to Kafka's client one by one, as if librdkafka's functions were not found",
    )


@pytest.fixture(scope="session", autouse=True)
def _one_by_one(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--one-by-one"):
            patch.setattr(librdkafka, "library", lambda: None)
        yield


@pytest.fixture
def set_timing():
    """A function that replaces durations of the log in this process, such as ``set_timing(fresh_age=60.0)``."""
    with ExitStack() as stack:
        yield lambda **durations: stack.enter_context(timing.replaced(**durations))


@pytest.fixture(scope="session")
def conf():
    """The settings of the brokers, for tests that start their own broker."""
    return ROOT / "conf" / "kafka"


@pytest.fixture(scope="session")
def broker(conf):
    """One Kafka broker for all tests. A test that breaks it restarts it."""
    with KafkaBroker(conf) as broker:
        yield broker


@pytest.fixture(scope="session")
def authenticating(conf, tmp_path_factory):
    """A separate broker with a login by each mechanism; see `tests.kafka.authenticating`."""
    with authenticating_broker(conf, tmp_path_factory.mktemp("authenticating")) as authenticating:
        yield authenticating


@pytest.fixture
def msk_user(monkeypatch, tmp_path):
    """The environment of a user of Amazon MSK, without a token of an earlier test."""
    monkeypatch.setattr(tokens, "_OWN", {})
    _set_aws_user(monkeypatch, tmp_path)
    return monkeypatch


def _set_aws_user(env, folder):
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        env.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        env.setenv(name, str(folder / name))
    for name, value in AWS_USER.items():
        env.setenv(name, value)


@pytest.fixture(scope="module")
def _own_broker(conf):
    with KafkaBroker(conf) as broker:
        yield broker


@pytest.fixture
def own_broker(_own_broker):
    """A broker of the module, to stop and start. The fixture waits until it is alive again."""
    _own_broker.node(1).wait_until_alive()
    return _own_broker


@pytest.fixture(scope="session")
def connect_port():
    with held_ports(1) as [port]:
        yield port


def _keep_java_names(patch):
    """Look up each Java class and package once.

    For each use of a name, py4j searches all jars of Spark, which takes a sixth of the CPU time of the JVM.
    """
    from py4j.java_gateway import JavaPackage, JVMView  # type: ignore[import-untyped]

    for owner in (JVMView, JavaPackage):

        def look_up(self, name, find=owner.__getattr__):
            return self.__dict__.setdefault(name, find(self, name))

        patch.setattr(owner, "__getattr__", look_up)


@pytest.fixture(scope="session")
def spark(connect_port, tmp_path_factory):
    """One Spark application for all tests, with a Spark Connect server in its JVM.

    It has two threads and four attempts per task. Plain local mode never retries. Its Python processes inherit the
    environment of its JVM, which has that of a user of Amazon MSK.
    """
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as env:
        env.setenv("PYSPARK_PYTHON", sys.executable)
        env.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        env.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        settings: dict[str, bool | float | int | str | None] = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **INTERPRETED,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": (
                f"-Dlog4j2.configurationFile=file:{QUIET} -Dderby.system.home={scratch} -Duser.timezone=UTC"
            ),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "Europe/Berlin",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": str(connect_port),
        }
        _keep_java_names(env)
        builder = SparkSession.builder.master("local[2,4]").appName("spark_cas tests")
        with pytest.MonkeyPatch.context() as of_jvm:
            _set_aws_user(of_jvm, scratch)
            session = builder.config(map=settings).getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="module")
def connect(spark, connect_port):
    """A Spark Connect session. While it exists, column functions belong to Connect."""
    from pyspark.sql.connect.session import SparkSession

    with pytest.MonkeyPatch.context() as env:
        env.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{connect_port}").create()
        yield session
        session.stop()


@pytest.fixture
def path(tmp_path):
    """The path of a log, which need not exist yet."""
    return str(tmp_path / "flights")
