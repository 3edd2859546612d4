"""Rules on images, tuples and their evidence. Pure functions."""
