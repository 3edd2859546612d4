"""The embedded API server, started as `python -m gpurunbook.embedded`."""
