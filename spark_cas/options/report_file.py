"""The file that takes what became of a load: tried before the rows are appended, and written in one step."""

import os
import uuid
from pathlib import Path


def may_be_put(file: str) -> bool:
    """Whether a file can be put there, as far as can be seen: into a folder that may be written, and over none."""
    path = Path(file).absolute()
    folder = path.parent
    return os.access(folder, os.W_OK | os.X_OK) and folder.is_dir() and (path.is_file() or not path.exists())


def put(file: str, text: str) -> None:
    """Put a text into a file: all of it, in place of what was there, or nothing. Raises OSError."""
    beside = Path(f"{file}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
