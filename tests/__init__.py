"""The suite. What each folder holds stands in CONTRIBUTING.md."""
