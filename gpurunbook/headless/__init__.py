"""Runs without a person: the papermill engine, one run, and all scenarios."""
