"""What runs above every backend: plans, loads, micro-batches, single appends."""
