"""What a process says about itself: structured logs and metrics."""
