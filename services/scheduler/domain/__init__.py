"""Pure decisions of the scheduler."""
