"""The rows that a failed write appended, as the last sentence of its error, because Spark passes only the text."""

import re
from collections.abc import Mapping

_NO_ROWS = "no rows"
_COUNT = r"partition \d+: \d+ rows"
_SENTENCE = re.compile(rf" ?Appended by this run: ({_NO_ROWS}|{_COUNT}(?:, {_COUNT})*)\.$")


def rows_text(rows: Mapping[int, int]) -> str:
    """Return the rows by partition as text."""
    counts = [f"partition {partition}: {rows[partition]} rows" for partition in sorted(rows) if rows[partition]]
    return ", ".join(counts) or _NO_ROWS


def with_sentence(message: str, rows: Mapping[int, int]) -> str:
    """Return the message with a last sentence that reports the rows; it replaces an existing one."""
    return f"{without_sentence(message)} Appended by this run: {rows_text(rows)}."


def without_sentence(message: str) -> str:
    """Return the message without the last sentence if that reports rows."""
    return _SENTENCE.sub("", message)


def rows_in(message: str) -> dict[int, int] | None:
    """Return the rows that the last sentence of a message reports, by partition; None if it reports none."""
    found = _SENTENCE.search(message)
    counts = re.findall(r"partition (\d+): (\d+) rows", found[1]) if found else []
    return None if found is None else {int(partition): int(rows) for partition, rows in counts}
