"""A run's folder and the notebook in it, as files: made, found, read and written whole."""
