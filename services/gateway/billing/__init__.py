"""What finance uses: use of GPU time, statements of jobs."""
