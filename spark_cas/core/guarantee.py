"""The requested guarantee of a write (option ``idempotence``, KIP-192), and the actual guarantee of a partition."""

REQUIRED = "required"
"""Exactly once, or an error before any append."""
REQUESTED = "requested"
"""The strongest guarantee that the log supports."""
OFF = "off"
"""Append without plan, claim and ledger."""

EXACTLY_ONCE = "exactly-once"
"""Each row is stored once, despite retries, crashes and re-runs of the same job."""
IDEMPOTENT = "idempotent"
"""A request that the client retries is stored once. A task that Spark retries, or a re-run of the write, appends its
rows again."""
AT_LEAST_ONCE = "at-least-once"
"""Acknowledged rows are stored. Any retry may store them twice."""
