"""Run one broker in the foreground, for experiments."""

import argparse
import signal
import sys
from pathlib import Path

from tools.kafka_broker.cluster import KafkaBroker
from tools.kafka_broker.connector import avro_jars
from tools.kafka_broker.jars import KAFKA_VERSION, kafka_jars, tools_jars
from tools.kafka_broker.waiting import end_of

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
    """Run a broker until Ctrl-C, SIGTERM or its own exit. With ``--jars-only``, only download its jars."""
    parser = argparse.ArgumentParser(description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--conf", type=Path, help="the folder with server.properties and log4j2.properties")
    mode.add_argument("--jars-only", action="store_true", help="download the jars of a broker, and start none")
    arguments = parser.parse_args()
    if arguments.jars_only:
        kafka_jars()
        avro_jars()  # for tests
        tools_jars()
        return 0
    return _serve(arguments.conf)


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
