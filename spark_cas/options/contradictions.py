"""Reject options that contradict each other or the kind of the write."""

import warnings

from spark_cas.core.errors import OptionError
from spark_cas.core.guarantee import OFF, REQUIRED
from spark_cas.options.option import ATOMIC_PARTITION, DEPRECATED_IDEMPOTENCE
from spark_cas.options.option_values import Given

_OF_LOADS = {
    "compare": "a micro-batch cannot expect anything of its keys",
    "roundOf": "append_if_unchanged takes no stream",
    "grantTimeout": "a stream waits for no load, or, with atomic=load, up to an hour",
    "report": "a stream is never complete, and view=progress tells how far it came",
}


def refuse_of_loads(given: Given) -> None:
    """Raise OptionError for an option of loads in a streaming write."""
    for name, why in _OF_LOADS.items():
        if name.lower() in given.explicit:
            raise OptionError(f"option {name} is for loads: {why}. Leave it out.")
    if "atomic" in given.explicit and given.need("atomic", str) == ATOMIC_PARTITION:
        raise OptionError(
            "option atomic of a stream must be load, for batches as a whole, or be left out: the rows of a "
            "micro-batch for a partition are one chunk without it, unless orderBy allows several."
        )
    if "idempotence" in given.explicit and given.need("idempotence", str) != REQUIRED:
        raise OptionError(
            f"option idempotence of a stream must be {REQUIRED}: its batches come again after a failure, and without "
            f"a ledger each would be appended again. Leave it out, or write within foreachBatch without batchId."
        )


_WITH_PLAN = {
    "job": "nothing is known of the write when it is run again",
    "roundOf": "its rows expect something of their keys",
}


def warn_of_deprecated(given: Given) -> None:
    """Issue a FutureWarning for a deprecated value."""
    word = given.merged.get("idempotence", "").strip().lower()
    if word in DEPRECATED_IDEMPOTENCE:
        warnings.warn(
            f"option idempotence: {word} is deprecated (KIP-192). Say {DEPRECATED_IDEMPOTENCE[word]}, as it means.",
            FutureWarning,
            stacklevel=4,
        )


def refuse_of_plans(given: Given) -> None:
    """Raise OptionError for an option that needs a plan if ``idempotence`` is ``off``."""
    if given.need("idempotence", str) == OFF:
        for name, why in _WITH_PLAN.items():
            if name.lower() in given.explicit:
                raise OptionError(
                    f"option {name} is given, and idempotence is off, by option or in the log's defaults: {why}. "
                    f"Leave out the one, or say idempotence={REQUIRED}."
                )


_OF_RECORDS = (
    "assign",
    "logId",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)


def refuse_for_views(given: Given) -> None:
    """Raise OptionError for an option that selects records if the view returns none."""
    for name in _OF_RECORDS:
        if name.lower() in given.explicit:
            raise OptionError(
                f"option {name} is for view=records and view=newest; others tell of all of the log. Leave it out."
            )
