"""Bytes as a person reads them."""


def readable(value: bytes | None) -> str:
    """Bytes as text in one line: what is no UTF-8, or would not print, as Python writes it; ``<null>`` for None."""
    if value is None:
        return "<null>"
    text = value.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
