"""The form of runbook notebooks."""
