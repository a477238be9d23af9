"""`verdict`: a pure function of the scores of base and adapter; `pairs`: that of a reward model."""
