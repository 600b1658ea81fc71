"""Run the command line of the store as ``python -m key_value_store``."""

from key_value_store.cli import main

main()
