"""What is left of a run: sealed, verified, and read by other runs."""
