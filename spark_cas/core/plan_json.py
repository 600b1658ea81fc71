"""JSON forms of plans, ledger entries and completions, one line each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from spark_cas.core.append_totals import Appends
from spark_cas.core.errors import FormatError
from spark_cas.core.plan import BatchProgress, Completion, EarlierRows, PartitionResult, Plan, Progress, Replacement
from spark_cas.core.recorded_fields import INVALID_FIELDS, require_types


def to_json(value: Plan | Progress | Completion) -> str:
    """Return a value as one line of JSON, for the registry and the ledger."""
    return json.dumps(asdict(value), sort_keys=True, separators=(",", ":"))


def plan_from_json(text: str | bytes) -> Plan:
    """Parse a `Plan` from the output of `to_json`; raise one of `INVALID_FIELDS` for other text."""
    fields = json.loads(text)
    fields["expected_offsets"] = tuple(fields["expected_offsets"])
    fields["end_offsets"] = tuple(fields["end_offsets"])
    fields["replaced"] = tuple(Replacement(**each) for each in fields["replaced"])
    fields["earlier"] = earlier_from_fields(fields.get("earlier", ()))
    fields["named"] = tuple(fields.get("named", ()))
    return require_types(Plan(**fields))


def earlier_from_fields(fields: Iterable[Mapping[str, Any]]) -> tuple[EarlierRows, ...]:
    """Return `EarlierRows` from the fields of their JSON; raise one of `INVALID_FIELDS` for others."""
    return tuple(
        EarlierRows(each["job"], *(tuple(each[name]) for name in ("rows", "digests", "complete"))) for each in fields
    )


def progress_from_json(text: str | bytes) -> Progress:
    """Parse a `Progress` from the output of `to_json`; raise one of `INVALID_FIELDS` for other text."""
    return progress_from_fields(json.loads(text))


def progress_from_fields(fields: dict[str, Any]) -> Progress:
    """Return a `Progress` from the fields of its JSON; raise one of `INVALID_FIELDS` for others."""
    return require_types(_progress(fields))


def _progress(fields: dict[str, Any]) -> Progress:
    values = dict(fields)
    batch = values.pop("batch", None)
    own_ranges = tuple((base, end) for base, end in values.pop("own_ranges", ()))
    return Progress(**values, batch=None if batch is None else BatchProgress(**batch), own_ranges=own_ranges)


def completion_from_json(text: str | bytes) -> Completion:
    """Parse a `Completion` from the output of `to_json`; raise one of `INVALID_FIELDS` for other text."""
    fields = json.loads(text)
    fields["partitions"] = tuple(_result(each) for each in fields["partitions"])
    return require_types(Completion(**fields))


def recorded_plan(text: str, job: str) -> Plan:
    """Parse the recorded plan of a job; raise FormatError if the text is not a plan."""
    try:
        return plan_from_json(text)
    except INVALID_FIELDS:
        raise _foreign(f"the plan of job {job!r}") from None


def recorded_completion(text: str, job: str) -> Completion:
    """Parse the recorded completion of a job; raise FormatError if the text is not a completion."""
    try:
        return completion_from_json(text)
    except INVALID_FIELDS:
        raise _foreign(f"the completion of job {job!r}") from None


def _foreign(subject: str) -> FormatError:
    return FormatError(
        f"{subject} in the registry is not in the format of this spark_cas. Either a newer version or another "
        f"program wrote it."
    )


def _result(fields: dict[str, Any]) -> PartitionResult:
    values = dict(fields)
    progress, appends = _progress(values.pop("progress")), Appends(**values.pop("appends", {}))
    return PartitionResult(progress, **values, appends=appends)
