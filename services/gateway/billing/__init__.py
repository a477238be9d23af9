"""Routes for finance: use of GPU time, statements of jobs."""
