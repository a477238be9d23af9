"""Statistics of the gate: pure functions of counts and scores."""
