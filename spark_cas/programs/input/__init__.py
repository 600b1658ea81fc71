"""The input of a bulk load: the list of its files, and readers that keep each value or reject the file."""
