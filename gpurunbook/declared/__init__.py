"""One module per runbook: its parameters, steps and permissions."""
