"""Append records to a partition: the writer, its transaction, and the offsets of the records."""
