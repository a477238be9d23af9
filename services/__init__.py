"""Who decides and who acts: one folder per process."""
