"""The input of a bulk load as data: its files, and the arguments that affect its rows."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

MOST_RECORDED = 10_000
"""The maximum number of files that the registry lists. Above it, the registry records only their count and bytes,
because every driver that uses the registry reads all of it."""
_DIGEST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a load."""

    path: str
    """The absolute URI as Spark's file listing returns it, without percent-encoding: ``file:/data/a b.csv``."""
    size: int
    """Bytes, before decompression."""
    modified_ms: int
    """Modification time, milliseconds since 1970."""
    partitions: tuple[tuple[str, str | None], ...] = ()
    """The name and text of each folder such as ``region=007`` between the input folder and the file."""

    @property
    def folders_above(self) -> list[str]:
        """The names of such folders that contain the input folder. The rows have no columns for them."""
        pairs = [each.partition("=") for each in self.path.split("/")[:-1]]
        names = [name for name, equals, _ in pairs if name and equals]
        return names[: len(names) - len(self.partitions)]


@dataclass(frozen=True, slots=True)
class InputList:
    """All files of a load in path order, and a digest of each argument that affects its rows."""

    files: tuple[InputFile, ...]
    arguments: tuple[tuple[str, str], ...]
    """Name and digest. The value itself is not recorded, because it may be secret."""

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def digest(self) -> str:
        """The identity of the list. Lists with the same files and arguments have the same digest."""
        return digest_of(_compact([[_fields(each) for each in self.files], self.arguments]))

    def to_json(self) -> str:
        """Return the list as one line of JSON for the registry; above `MOST_RECORDED` files, without the files."""
        count = len(self.files)
        fields = {"arguments": dict(self.arguments), "bytes": self.bytes, "count": count, "files": None}
        if count <= MOST_RECORDED:
            fields["files"] = [_fields(each) for each in self.files]
        return _compact(fields)


@dataclass(frozen=True, slots=True)
class RecordedInput:
    """The input list of a job as recorded in the registry."""

    count: int
    bytes: int
    arguments: tuple[tuple[str, str], ...]
    files: tuple[InputFile, ...] | None
    """None above `MOST_RECORDED` files."""

    @classmethod
    def from_json(cls, text: str) -> "RecordedInput":
        """Parse the output of `InputList.to_json`; raise KeyError, TypeError or ValueError for other text."""
        fields = json.loads(text)
        files = None if fields["files"] is None else tuple(InputFile(*each) for each in fields["files"])
        return cls(fields["count"], fields["bytes"], tuple(sorted(fields["arguments"].items())), files)


def _fields(file: InputFile) -> list[object]:
    return [file.path, file.size, file.modified_ms]


def _compact(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def digested_arguments(arguments: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Return the name and digest of each argument that has a value, sorted by name."""
    return tuple(
        (name, digest_of(json.dumps(value, sort_keys=True)))
        for name, value in sorted(arguments.items())
        if value not in (None, (), "")
    )


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text, shortened to 128 bits, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def first_difference(recorded: RecordedInput, current: InputList, planned_at_ms: int) -> str:
    """Describe the first difference between the list that the first run of a job recorded and that of this run.

    ``planned_at_ms`` is the time of the job's plan, milliseconds since 1970.
    """
    earlier, later = dict(recorded.arguments), dict(current.arguments)
    for name in sorted({*earlier, *later}):
        if earlier.get(name) != later.get(name):
            return f"argument {name} differs"
    if recorded.files is None:
        newer = next((each.path for each in current.files if each.modified_ms > planned_at_ms), None)
        changed = "" if newer is None else f"; file {newer} was modified after the job was planned"
        return (
            f"the job began with {recorded.count} files of {recorded.bytes} bytes, and the input now has "
            f"{len(current.files)} files of {current.bytes} bytes{changed}"
        )
    return different_file(recorded.files, current.files)


def different_file(recorded: tuple[InputFile, ...], current: tuple[InputFile, ...]) -> str:
    """Describe the first difference between two lists of files that differ."""
    before, now = ({each.path: each for each in files} for files in (recorded, current))
    for path in sorted({*before, *now}):
        old, new = before.get(path), now.get(path)
        if new is None:
            return f"file {path} is missing"
        if old is None:
            return f"file {path} is new"
        if old.size != new.size:
            return f"file {path} had {old.size} bytes and has {new.size}"
        if old.modified_ms != new.modified_ms:
            return f"file {path} was modified since"
    return "the order of the files differs"
