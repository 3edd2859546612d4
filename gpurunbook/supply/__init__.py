"""Rules on images, tuples and their evidence. Pure functions."""

from gpurunbook.offered import offered

__getattr__, __dir__ = offered(
    __name__,
    {
        "evidence_gate": "gpurunbook.supply.gatecheck",
        "evidence_ready": "gpurunbook.supply.audit",
        "approved_by_another": "gpurunbook.supply.proposal",
        "approved_run": "gpurunbook.supply.promotion",
        "canary_proven": "gpurunbook.supply.canary",
        "carried": "gpurunbook.supply.promotion",
        "gates_closed": "gpurunbook.supply.eligibility",
        "manifests_kept": "gpurunbook.supply.reviewed",
        "provenance": "gpurunbook.supply.audit",
        "qualified": "gpurunbook.supply.promotion",
        "release_proposal": "gpurunbook.supply.proposal",
        "same_digests": "gpurunbook.supply.inventory",
        "stabilise": "gpurunbook.supply.stabilisation",
        "stabilised": "gpurunbook.supply.stabilisation",
        "still_live": "gpurunbook.supply.reviewed",
    },
)
