"""A Lease per target keeps other runs out. It is never stolen: a run that died gives it back by resume or abort."""

from __future__ import annotations

import hashlib

from gpurunbook.plan import Mutation, Target
from gpurunbook.pointers import escape

LABEL = "gpurunbook.io/lease"
"""Label of all our leases; its value is `true`."""

RUN = "gpurunbook.io/run"
"""Annotation: the run that holds it."""


def name(target: str) -> str:
    """Writes nothing. The Lease's name for a target such as `node/gpu-a` or `cluster`: `gpurunbook-node-gpu-a`."""
    plain = "gpurunbook-" + target.replace("/", "-")
    return plain if len(plain) <= 253 else f"{plain[:220]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def collection(namespace: str) -> str:
    """Writes nothing. The API path of the leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def acquire(namespace: str, target: str) -> Mutation:
    """Writes nothing. The mutation that takes the lease of a target; it fails when the lease exists."""
    return Mutation(
        name="lease",
        verb="create",
        target=Target("Lease", name(target), collection(namespace), namespace),
        body={
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name(target),
                "namespace": namespace,
                "labels": {LABEL: "true"},
                "annotations": {RUN: "${run}", "gpurunbook.io/target": target, "gpurunbook.io/reason": "${reason}"},
            },
            "spec": {"holderIdentity": "${run}", "acquireTime": "${time}"},
        },
        goal={"/spec/holderIdentity": "${run}", f"/metadata/annotations/{escape(RUN)}": "${run}"},
    )


def take_over(namespace: str, target: str, uid: str, holder: str) -> Mutation:
    """Writes nothing. The mutation that takes the lease from one named run, and from no other."""
    path = f"{collection(namespace)}/{name(target)}"
    return Mutation(
        name="lease",
        verb="patch",
        patch="merge",
        target=Target("Lease", name(target), path, namespace, uid),
        body={
            "metadata": {"annotations": {RUN: "${run}", "gpurunbook.io/taken-from": holder}},
            "spec": {"holderIdentity": "${run}", "acquireTime": "${time}"},
        },
        judged={"/spec/holderIdentity": holder},
        goal={"/spec/holderIdentity": "${run}", f"/metadata/annotations/{escape(RUN)}": "${run}"},
    )


def give_back(namespace: str, target: str, uid: str) -> Mutation:
    """Writes nothing. The mutation that deletes this very lease."""
    path = f"{collection(namespace)}/{name(target)}"
    return Mutation(name="lease-back", verb="delete", target=Target("Lease", name(target), path, namespace, uid))
