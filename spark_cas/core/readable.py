"""Conversion of bytes to readable text."""


def readable(value: bytes | None) -> str:
    """Return bytes as one line of text, with Python escapes for invalid UTF-8 and unprintable characters.

    None becomes ``<null>``.
    """
    if value is None:
        return "<null>"
    text = value.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
