"""Run the command line of the store as ``python -m key_value_store``."""

import sys

from key_value_store.cli import main

sys.exit(main())
