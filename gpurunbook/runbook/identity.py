"""The first questions of a run: is it the cluster that was meant, who asks, and may he do what the runbook does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from gpurunbook.declared.book import Permission
from gpurunbook.errors import Denied, Drifted, ParameterError
from gpurunbook.folder import parameters
from gpurunbook.journal import State
from gpurunbook.runbook import authority, permissions
from gpurunbook.runbook.ledger import Ledger
from gpurunbook.runbook.site import Site, cluster_uid


def identify(run: Ledger, site: Site, before: State) -> None:
    """Appends `cluster`: which one, who the operator is, and whether it is a rehearsal. before: of an earlier start.

    Raises GateError for an apply that lacks a parameter and ParameterError, both before any request; Drifted
    `wrong-cluster` after the first one; Denied `permission-missing` with the Role that grants what is missing.
    """
    if run.book.changes and run.parameters.apply:
        authority.demand(run)
    name = run.parameters.cluster
    cluster: dict[str, Any] = {"name": name, "uid": None, "version": None}
    operator = ""
    reasons: tuple[str, ...] = ("captured file instead of a live cluster",)
    captured = bool(getattr(run.parameters, "pod_json", ""))
    wanted = [] if captured else permissions.needed(run.book, run.parameters, site)
    if not captured:
        try:
            _expected(run, site, before)
        except Denied:
            _refuse(run, permissions.IDENTITY, "")
        found = run.cluster.identify()
        cluster = {"name": run.cluster.name, "uid": found.uid, "version": found.version}
        operator, reasons = found.operator, found.rehearsal
    elif run.parameters.expect_cluster:
        raise ParameterError(
            "a captured file names no cluster, so none can be expected",
            subject="parameter 'expect_cluster'",
            remedy="Leave it empty together with pod_json.",
        )
    if parameters.moment(run.parameters):
        reasons = (*reasons, "judged at a given time")
    run.journal.append(
        "cluster",
        {
            "cluster": cluster,
            "operator": {"name": operator},
            "rehearsal": bool(reasons),
            "rehearsal_reasons": list(reasons),
        },
    )
    if wanted and (missing := run.cluster.missing(wanted)):
        _refuse(run, missing, operator)


def _expected(run: Ledger, site: Site, before: State) -> None:
    """The cluster is the one that was meant; judged by its first answer, before any other call."""
    seen = before.start.get("cluster", {})
    expected = cluster_uid(site, run.parameters.expect_cluster)
    uid = run.cluster.uid
    began = f"the start of this run, in context {seen['name']!r}" if seen.get("name") else "the start of this run"
    for wanted, why in ((expected, "expect_cluster"), (seen.get("uid"), began)):
        if wanted and wanted != uid:
            raise Drifted(
                f"namespace kube-system has uid {uid}, wanted {wanted} ({why})",
                subject=f"cluster {run.cluster.name or 'of the current context'}",
                remedy="Nothing else was read. Check the kubeconfig context.",
                code="wrong-cluster",
            )


def _refuse(run: Ledger, missing: Sequence[Permission], operator: str) -> NoReturn:
    raise Denied(
        f"{operator or 'the operator'} may not: {', '.join(map(permissions.spell, missing))}",
        subject="permissions",
        remedy="Apply this Role, or ask for it:\n" + permissions.role(run.book.name, missing),
        code="permission-missing",
    )
