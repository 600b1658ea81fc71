"""Input of a bulk load: the list of its files, and strict readers that return exact values or reject the file."""
