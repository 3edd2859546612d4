"""Parameters that runbooks share."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpurunbook.declared.book import described


class Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of every runbook: which cluster, which run, and why."""

    cluster: Annotated[
        str, described("kubeconfig context, embedded:DIR of a fixture cluster, in-cluster, or empty: current context")
    ] = ""
    expect_cluster: Annotated[str, described("uid of namespace kube-system, or its alias in the site file")] = ""
    run_id: Annotated[str, described("go on with this run; empty: a new one")] = ""
    change_id: Annotated[str, described("change ticket that this evidence belongs to")] = ""
    reason: Annotated[str, described("why this is done, for whoever reads the evidence")] = ""
    site: Annotated[str, described("site file; empty: parameters/site.yaml where there is one")] = ""


class Changing(Common, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of runbooks that change something: dry run first, then apply with the digest of its plan."""

    apply: Annotated[bool, described("False: dry run, nothing is written; True: change the cluster")] = False
    plan: Annotated[str, described("plan digest that the dry run ended with; apply needs it")] = ""
    approval: Annotated[str, described("approval file; empty: approval.json beside the plan")] = ""
    take_over: Annotated[str, described("run whose lease is taken, because it died; named on purpose")] = ""
    break_glass: Annotated[bool, described("apply without approval where the site allows it; red everywhere")] = False
