"""What training rows should not contain, and what happens to rows that do."""
