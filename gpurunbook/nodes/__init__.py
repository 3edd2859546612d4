"""Rules on holders, cordons and rollouts. Pure functions."""
