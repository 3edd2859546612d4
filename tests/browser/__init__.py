"""Runbooks in JupyterLab, driven in Chromium."""
