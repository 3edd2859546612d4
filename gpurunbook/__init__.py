"""SRE runbooks for GPU clusters."""
