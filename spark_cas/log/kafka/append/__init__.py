"""How records come into a partition: the writer, its transaction, and where the records landed."""
