"""What a job will need and cost, and when it will run: pure arithmetic, integers out."""
