"""Accelerators of the Kafka backend. Each has a public path beside it, and logs once if that is used instead.

| module | public path |
| --- | --- |
| `array_producer`, with `librdkafka` and `record_arrays` | `spark_cas.log.kafka.client.object_producer` |
| `connections` | a new producer instance for each chunk |
"""
