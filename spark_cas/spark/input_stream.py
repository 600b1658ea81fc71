"""The stream on which Spark's JVM sends input to the task of this process."""

import sys
from io import BufferedReader, BufferedRWPair
from types import FrameType

Stream = BufferedReader | BufferedRWPair


def stream_from_jvm() -> Stream | None:
    """Return the input stream of the task, or None if there is none.

    Spark has no API for this stream. It is a local variable of the functions that run a worker, so this searches the
    calling frames for a value of its type. In pyspark 4.2 and 4.3, the frames up to the worker's main function have
    no other value of this type.

    The end of the input (decision 0003) and an accelerator use it. Without it, the accelerator is off, and a write
    that needs the end of the input raises SparkSetupError.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - there is no other way
    while frame is not None:
        for result in frame.f_locals.values():
            if isinstance(result, Stream):
                return result
        frame = frame.f_back
    return None
