"""What a write asks for (option ``idempotence``, KIP-192), and what each partition then really got."""

REQUIRED = "required"
"""Exactly once, or an error before anything is appended."""
REQUESTED = "requested"
"""The best that the log gives."""
OFF = "off"
"""Appended without plan, claim and ledger."""

EXACTLY_ONCE = "exactly-once"
"""Each row is in the log once, whatever is retried, killed or run again under the same job."""
IDEMPOTENT = "idempotent"
"""A request that a client sends again is in the log once; a task that Spark tries again, or a write that is run
again, appends its rows again."""
AT_LEAST_ONCE = "at-least-once"
"""What was acknowledged is in the log; whatever is tried again may be there twice."""
