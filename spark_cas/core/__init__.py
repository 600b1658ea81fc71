"""Values and rules of the conditional log: pure, with no clock, randomness, network or Spark."""
