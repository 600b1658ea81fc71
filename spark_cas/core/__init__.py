"""Values and rules of the conditional log: pure, with no clock, randomness, network or Spark."""

__version__ = "0.1.0"
