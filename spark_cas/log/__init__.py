"""Backends of the conditional log behind one protocol, and the load that runs over any of them."""
