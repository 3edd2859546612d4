"""Rules on holders, cordons and rollouts. Pure functions."""

from gpurunbook.nodes.holders import no_holders

__all__ = ["no_holders"]
