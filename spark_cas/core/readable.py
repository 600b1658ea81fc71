"""Conversion of bytes to readable text."""

_LONGEST_KEY = 60
"""The maximum number of characters of a key in an error."""


def readable(value: bytes | None) -> str:
    """Return bytes as one line of text, with Python escapes for invalid UTF-8 and unprintable characters.

    None becomes ``<null>``.
    """
    if value is None:
        return "<null>"
    text = value.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def readable_key(key: bytes | None) -> str:
    """Return a key as `readable` does, cut after 60 characters."""
    # A key may have megabytes. A character has at most four bytes.
    text = readable(key if key is None else key[: 4 * _LONGEST_KEY + 4])
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"


def row_name(row: int, partition: int, key: bytes | None) -> str:
    """Return the name of a row in an error: its number, its partition, and its key if it has one."""
    return f"row {row} of partition {partition}{'' if key is None else f' (key {readable_key(key)})'}"
