"""Backends of the conditional log with one common protocol, and the load that runs on any of them."""
