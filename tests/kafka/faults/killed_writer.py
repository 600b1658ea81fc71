"""A process that loads `ROWS` in chunks, and stops at a step of each chunk until a test kills it.

Each row has its own request. Arguments: bootstrap servers, topic, step. The step is one of `STEPS`; any other
word disables the stop. At the step, the process prints ``here`` and waits for a line on stdin.
"""

import sys

from spark_cas.core.chunks import ChunkLimits
from spark_cas.core.expected_offsets import ExpectedOffsets
from spark_cas.log.kafka import KafkaLog
from spark_cas.log.kafka.client.sending import Sending
from spark_cas.log.load.planning import pin_plan
from tests.kafka import stopped_writer
from tests.kafka.faulted import JOB, spec_of
from tests.kafka.stopped_writer import AFTER, wait_at
from tests.support.loads import load

CHUNK = 20
LIMITS = ChunkLimits(max_records=CHUNK, max_bytes=1_000_000, max_seconds=1_000)
ROWS = {0: [f"{at}" for at in range(3 * CHUNK)]}
ONE_BY_ONE = "1"
"""The ``batch.size`` at which each request holds one record, so that several requests are in flight."""

STEPS = {"claim": (KafkaLog, "claim", AFTER), "sent": (Sending, "__init__", AFTER), **stopped_writer.STEPS}
"""At ``sent``, the client has queued the rows and sends them."""


def main() -> None:
    """Load the rows."""
    servers, topic, step = sys.argv[1:]
    with KafkaLog(spec_of(servers, topic, batch_size=ONE_BY_ONE)) as log:
        plan = pin_plan(log, JOB, ExpectedOffsets.parse("end"))
        if step in STEPS:
            home, name, before = STEPS[step]
            wait_at(home, name, before=before)
        load(log, plan, ROWS, limits=LIMITS)


if __name__ == "__main__":
    main()
