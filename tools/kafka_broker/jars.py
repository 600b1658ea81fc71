"""Kafka's jars and others, downloaded once from Maven Central with the Ivy that pyspark includes.

The cache folder is ``$SPARK_CAS_CACHE``, by default in the user's cache folder. For networks with a mirror of Maven
Central, ``$SPARK_CAS_IVY_SETTINGS`` names an Ivy settings file.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tools.kafka_broker.waiting import BrokerFailedError, end_of, wait_until

KAFKA_VERSION = "4.1.1"
LOG4J_VERSION = "2.24.3"
"""The version that this Kafka is built with. Its SLF4J binding is not a dependency of Kafka's jar, but brokers need
it to write logs."""

HASHES = Path(__file__).with_name("jars.sha256")
"""The SHA-256 of each jar, as ``sha256sum`` writes them. ``make lock`` renews the file."""

RESOLVE_SECONDS = 600
LOCK_SECONDS = RESOLVE_SECONDS + 30

_IVY_FILE = f"""\
<ivy-module version="2.0">
  <info organisation="spark_cas" module="kafka-broker"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{LOG4J_VERSION}"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def kafka_jars() -> Path:
    """Return the folder with the jars of a broker. The first call on a machine downloads them (43 MB)."""
    return resolved(f"kafka-{KAFKA_VERSION}", _IVY_FILE)


def kafka_archive() -> Path:
    """Return the path of the archive of a broker's classes (JEP 350). It may not exist.

    With it, a broker starts in two thirds of the CPU time. A JVM with another version or class path ignores it.
    """
    return cache_folder() / f"kafka-{KAFKA_VERSION}.jsa"


def tools_jars() -> Path:
    """Return the folder with the jar of Kafka's command-line tools, which needs those of a broker (0.6 MB)."""
    return one_jar("org.apache.kafka", "kafka-tools", KAFKA_VERSION)


def one_jar(organisation: str, name: str, version: str) -> Path:
    """Return the folder with a jar, without its dependencies. Raises as `resolved`."""
    module = name.removesuffix("_2.13")
    ivy_file = f"""\
<ivy-module version="2.0">
  <info organisation="spark_cas" module="{module}"/>
  <dependencies defaultconfmapping="default->default">
    <dependency org="{organisation}" name="{name}" rev="{version}" transitive="false"/>
  </dependencies>
</ivy-module>
"""
    return resolved(f"{module}-{version}", ivy_file)


def resolved(name: str, ivy_file: str) -> Path:
    """Return the cache folder with the jars of an Ivy file. The first call on a machine downloads them.

    Args:
        name: the name of the folder; use another name for another Ivy file
        ivy_file: the content of the Ivy file

    Raises:
        BrokerFailedError: if the download fails or takes too long, or a jar does not have its hash of `HASHES`
    """
    cache = cache_folder()
    jars = cache / name
    if not jars.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{jars.name}.lock"):
            if not jars.is_dir():
                _resolve(jars, ivy_file)
    return jars


def java() -> str:
    """Return the Java that Spark uses. Raises BrokerFailedError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if found is None:
        raise BrokerFailedError("Java 17 or newer is needed: install it, or set JAVA_HOME")
    return found


def cache_folder() -> Path:
    """Return the folder that caches downloads and builds of tests. It may not exist."""
    given = os.environ.get("SPARK_CAS_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "spark_cas")


def _resolve(jars: Path, content: str) -> None:
    # Use a temporary name until the download is complete, so that an interrupted download is not used.
    staging = jars.with_name(f"{jars.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    ivy_file = staging / "ivy.xml"
    ivy_file.write_text(content)
    settings = os.environ.get("SPARK_CAS_IVY_SETTINGS")
    command = [
        *(java(), "-cp", f"{_spark_jars()}/*", "org.apache.ivy.Main"),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(staging / "ivy"), "-ivy", str(ivy_file), "-confs", "default"),
        *("-retrieve", f"{staging}/jars/[artifact]-[revision].[ext]"),
    ]
    sys.stderr.write(f"resolving {jars.name} from Maven Central, about a minute, this once\n")
    try:
        ivy = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RESOLVE_SECONDS)
    except subprocess.TimeoutExpired as late:
        raise BrokerFailedError(f"Kafka's jars were not there after {RESOLVE_SECONDS} s") from late
    if ivy.returncode != 0:
        raise BrokerFailedError(f"Kafka's jars could not be resolved:\n{end_of(ivy.stdout + ivy.stderr, 60)}")
    _verify(staging / "jars")
    (staging / "jars").rename(jars)
    shutil.rmtree(staging)


def _verify(jars: Path) -> None:
    pairs = (line.split() for line in HASHES.read_text().splitlines())
    expected = {name: digest for digest, name in pairs}
    for line in hash_lines(jars):
        digest, name = line.split()
        if digest != expected.get(name):
            raise BrokerFailedError(
                f"{name} has the SHA-256 {digest}, and {HASHES.name} has {expected.get(name)}. It was not installed. "
                f"If its version is new, run make lock."
            )


def hash_lines(jars: Path) -> list[str]:
    """Return a line of ``sha256sum`` for each jar of a folder."""
    return [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}" for jar in sorted(jars.glob("*.jar"))]


def _spark_jars() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise BrokerFailedError("pyspark is needed: its Ivy resolves Kafka's jars")
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("ivy-*.jar")):
        raise BrokerFailedError("Kafka's jars need the full pyspark, because pyspark-client does not contain Ivy")
    return jars


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:

        def taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_until(taken, LOCK_SECONDS, lambda: f"another process still holds {path}")
        yield
