"""Reject options that contradict each other or the kind of the write."""

import warnings

from spark_cas.core.errors import OptionError
from spark_cas.core.guarantee import OFF, REQUIRED
from spark_cas.options.option import ATOMIC_PARTITION, DEPRECATED_IDEMPOTENCE
from spark_cas.options.option_values import OptionValues

_OF_LOADS = {
    "compare": "a micro-batch cannot have conditions on keys",
    "roundOf": "append_if_unchanged does not accept a stream",
    "lockWaitTimeout": "a stream does not wait for a load; with atomic=load it waits up to an hour",
    "report": "a stream is never complete. view=progress shows its progress",
}


def refuse_of_loads(values: OptionValues) -> None:
    """Raise OptionError for an option of loads in a streaming write."""
    for name, why in _OF_LOADS.items():
        if name.lower() in values.explicit:
            raise OptionError(f"option {name} is for loads: {why}. Remove it.")
    if "atomic" in values.explicit and values.need("atomic", str) == ATOMIC_PARTITION:
        raise OptionError(
            "option atomic of a stream must be load, for atomic micro-batches, or absent. Without it, the rows of a "
            "micro-batch in a partition are one chunk, unless orderBy allows several."
        )
    if "idempotence" in values.explicit and values.need("idempotence", str) != REQUIRED:
        raise OptionError(
            f"option idempotence of a stream must be {REQUIRED}. Spark replays batches after a failure, and without "
            f"a ledger each replay would append its rows again. Remove it, or write in foreachBatch without batchId."
        )


_WITH_PLAN = {
    "job": "a rerun could not find the rows of the job",
    "roundOf": "its rows have conditions on keys",
}


def warn_of_deprecated(values: OptionValues) -> None:
    """Issue a FutureWarning for a deprecated value."""
    word = values.merged.get("idempotence", "").strip().lower()
    if word in DEPRECATED_IDEMPOTENCE:
        warnings.warn(
            f"option idempotence: {word} is deprecated (KIP-192). Use {DEPRECATED_IDEMPOTENCE[word]} instead.",
            FutureWarning,
            stacklevel=4,
        )


def refuse_of_plans(values: OptionValues) -> None:
    """Raise OptionError for an option that needs a plan if ``idempotence`` is ``off``."""
    if values.need("idempotence", str) == OFF:
        for name, why in _WITH_PLAN.items():
            if name.lower() in values.explicit:
                raise OptionError(
                    f"option {name} needs idempotence, which an option or the log's defaults set to off: {why}. "
                    f"Remove option {name}, or set idempotence={REQUIRED}."
                )


LIMITS_OF_READS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)
"""The options that name the first or last record of a read."""

_OF_RECORDS = ("assign", "logId", *LIMITS_OF_READS)


def refuse_for_views(values: OptionValues) -> None:
    """Raise OptionError for an option that selects records if the view returns none."""
    for name in _OF_RECORDS:
        if name.lower() in values.explicit:
            raise OptionError(
                f"option {name} is for view=records and view=newest. Other views show the whole log. Remove it."
            )
