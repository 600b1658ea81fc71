"""The confluent-kafka client: its instances, what its errors mean, how long a question is asked again."""
