"""Run one broker in the foreground, for experiments."""

import argparse
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tools.kafka_broker import jars
from tools.kafka_broker.cluster import KafkaBroker
from tools.kafka_broker.connector import all_avro_jars, avro_jars, connector_jars
from tools.kafka_broker.jars import HASHES, KAFKA_VERSION, hash_lines, kafka_archive, kafka_jars, tools_jars
from tools.kafka_broker.waiting import end_of

_CONF = Path(__file__).parents[2] / "conf" / "kafka"
_PORT = 9092
"""The port in the documentation."""
_WELCOME = """\
Kafka {version} listens on {bootstrap}. Ctrl-C ends it and removes its data.

The broker does not create topics automatically. To create one, in another terminal:

    {python} - <<'EOF'
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({{"bootstrap.servers": "{bootstrap}"}})
    admin.create_topics([NewTopic("flights", num_partitions=4)])["flights"].result()
    EOF

Spark and other clients connect with kafka.bootstrap.servers={bootstrap}
"""


def main() -> int:
    """Run a broker until Ctrl-C, SIGTERM or its own exit. With ``--jars-only``, only prepare its jars."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--conf", type=Path, help="the folder with server.properties and log4j2.properties")
    mode.add_argument("--jars-only", action="store_true", help="download the jars of a broker, and archive classes")
    mode.add_argument("--lock-jars", action="store_true", help=f"download all jars, and write {HASHES.name}")
    arguments = parser.parse_args()
    if arguments.lock_jars:
        _lock_jars()
        return 0
    if arguments.jars_only:
        kafka_jars()
        avro_jars()  # for tests
        tools_jars()
        _archive_classes()
        return 0
    return _serve(arguments.conf)


def _archive_classes() -> None:
    """Archive the classes that a broker loads until it listens. It writes them when it stops."""
    archive = kafka_archive()
    if archive.exists():
        return
    staging = archive.with_suffix(f".{os.getpid()}")
    given = os.environ.get("JAVA_TOOL_OPTIONS", "")
    options = {"JAVA_TOOL_OPTIONS": f"{given} -XX:ArchiveClassesAtExit={staging} -Xlog:disable"}
    with patch.dict(os.environ, options), KafkaBroker(_CONF) as broker:
        node = broker.node(1)
        os.kill(node.pid, signal.SIGTERM)
        if node.wait() == 128 + signal.SIGTERM and staging.exists():
            staging.rename(archive)
        else:
            print(f"Java makes no archive of Kafka's classes:\n{end_of(node.output)}", file=sys.stderr)


def _lock_jars() -> None:
    """Download all jars into a new cache, and write their hashes."""
    with TemporaryDirectory() as cache, patch.dict(os.environ, SPARK_CAS_CACHE=cache), patch.object(jars, "_verify"):
        folders = [kafka_jars(), tools_jars(), *all_avro_jars(), connector_jars()[0].parent]
        lines = sorted({line for folder in folders for line in hash_lines(folder)}, key=lambda line: line.split()[1])
    HASHES.write_text("\n".join(lines) + "\n")


def _serve(conf: Path) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with KafkaBroker(conf, measured=True, port=_PORT) as broker:
            welcome = _WELCOME.format(version=KAFKA_VERSION, bootstrap=broker.bootstrap, python=sys.executable)
            print(welcome, flush=True)
            broker.node(1).wait()
            print(f"The broker exited:\n{end_of(broker.node(1).output)}", file=sys.stderr)
            return 1
    except KeyboardInterrupt:
        print("\nThe broker has stopped, and its data is removed.")
        return 0


if __name__ == "__main__":
    sys.exit(main())
