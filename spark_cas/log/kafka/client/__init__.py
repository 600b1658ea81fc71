"""The confluent-kafka client: its instances, the meaning of its errors, request retries and deadlines."""
