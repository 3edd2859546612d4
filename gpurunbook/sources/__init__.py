"""All reading of clusters, files and tools, and the one door for changes."""
