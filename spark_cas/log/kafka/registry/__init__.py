"""The registry of a prefix, in compacted topics: plans, completions, outcomes, and expansions of topics."""
