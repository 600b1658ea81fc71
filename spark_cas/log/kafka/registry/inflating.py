"""Decompress data of a registry or a group, to a limited size."""

import zlib


def inflate(data: bytes, most: int) -> bytes:
    """Return data that zlib compressed.

    Args:
        data: The compressed data.
        most: The maximum size of the result, in bytes. No more memory is used for it.

    Raises:
        ValueError: The result is larger, or the data ends too early.
        zlib.error: The data is not in the format of zlib.
    """
    inflater = zlib.decompressobj()
    result = inflater.decompress(data, most + 1)
    if len(result) > most or not inflater.eof:
        msg = f"compressed data has an end after at most {most} bytes"
        raise ValueError(msg)
    return result
