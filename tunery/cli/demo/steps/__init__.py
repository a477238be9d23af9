"""The chapters of the story, in three acts: before, machines, after."""
