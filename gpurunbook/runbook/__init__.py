"""How a runbook starts, checks, closes and leaves evidence."""
