"""Rules on holders, cordons and rollouts. Pure functions."""

from gpurunbook.offered import offered

__getattr__, __dir__ = offered(
    __name__,
    {
        "capacity_lost": "gpurunbook.nodes.capacity",
        "held": "gpurunbook.nodes.service",
        "held_after": "gpurunbook.nodes.service",
        "mark": "gpurunbook.nodes.service",
        "no_holders": "gpurunbook.nodes.holders",
        "other_hands": "gpurunbook.nodes.controllers",
        "returns": "gpurunbook.nodes.service",
        "settled": "gpurunbook.nodes.service",
        "whose": "gpurunbook.nodes.service",
    },
)
