"""Operations that use any backend: plans, loads, micro-batches, and single appends."""
