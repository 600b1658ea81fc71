"""Accelerators of Spark's reads and writes. Each has a public path beside it, and logs once if that is used instead.

| module | public path |
| --- | --- |
| `jvm_hash` | a function in Python, in `spark_cas.spark.writing.partition_by_key` |
| `quick_ack` | the delayed acknowledgement of the system |
| `freezing` | a full garbage collection after each task |
"""
