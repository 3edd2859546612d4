"""One module per runbook: its parameters, steps and permissions; and which runbooks there are."""
