"""How hard the property tests try: HYPOTHESIS_PROFILE is default, ci or nightly."""

import os

from hypothesis import settings

# No deadline anywhere: the machine's load is no property of the code. Time is bounded per test.
settings.register_profile("default", max_examples=100, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=5000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
