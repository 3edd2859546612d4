"""The subresources of pods: eviction, binding, and the log."""

from __future__ import annotations

import msgspec

from gpurunbook.embedded.deletion import end
from gpurunbook.embedded.requests import Request, Target
from gpurunbook.embedded.resources import Resource
from gpurunbook.embedded.selection import requirement
from gpurunbook.embedded.status import ApiError, Obj, bad_request, conflict, success
from gpurunbook.embedded.store import Entry
from gpurunbook.embedded.writes import Done, Writes, rfc3339

BUDGETS = ("policy", "poddisruptionbudgets")


def _budget(writes: Writes, pod: Entry, obj: Obj) -> tuple[Entry, Obj] | None:
    """The disruption budget that guards the pod."""
    found = []
    for entry in writes.store.all(BUDGETS, pod.name[0]):
        budget = entry.object()
        if requirement(budget["spec"].get("selector") or {})(obj["metadata"].get("labels") or {}):
            found.append((entry, budget))
    if len(found) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "", text)
    return found[0] if found else None


def _spend(writes: Writes, pod: Entry, entry: Entry, budget: Obj, dry: bool) -> None:
    """Take one disruption from the budget; 429 when there is none."""
    status, name = budget.get("status") or {}, entry.name[1]
    too_many = "Cannot evict pod as it would violate the pod's disruption budget."
    text = f"The disruption budget {name} is still being processed by the server."
    retry: int | None = 10
    if status.get("observedGeneration", 0) >= budget["metadata"].get("generation", 0):
        if status.get("disruptionsAllowed", 0) > 0:
            if not dry:
                spent = {"disruptionsAllowed": status["disruptionsAllowed"] - 1}
                spent["disruptedPods"] = (status.get("disruptedPods") or {}) | {pod.name[1]: rfc3339(writes.now())}
                writes.store.write(BUDGETS, entry.name, budget | {"status": status | spent})
            return
        retry = None
        need, have = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        text = f"The disruption budget {name} needs {need} healthy pods and has {have} currently"
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": text}], "retryAfterSeconds": retry}
    raise ApiError(429, "TooManyRequests", too_many, details, retry_after=retry)


def evict(writes: Writes, request: Request, target: Target, resource: Resource) -> Done:
    """POST of an Eviction: a deletion that a disruption budget may refuse."""
    body = request.object()
    if body.get("kind", "Eviction") != "Eviction":
        raise bad_request(f'{body["kind"]} in version "policy/v1" cannot be handled as a Eviction')
    if (body.get("metadata") or {}).get("name") != target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options: Obj = body.get("deleteOptions") or {}
    if options.get("dryRun"):
        request.query["dryRun"] = options["dryRun"]
    dry = request.dry_run("CreateOptions")
    ending = {"grace": options.get("gracePeriodSeconds"), "preconditions": options.get("preconditions") or {}}
    with writes.store.lock:
        pod = writes.existing(target, resource)
        obj = pod.object()
        going = obj["metadata"].get("deletionTimestamp") or obj["status"].get("phase") in (
            "Succeeded",
            "Failed",
            "Pending",
        )
        guard = None if going else _budget(writes, pod, obj)
        if guard:
            _spend(writes, pod, *guard, dry)
        end(writes, resource, pod, ending, dry)
    return 201, msgspec.json.encode(success()), not dry


def bind(writes: Writes, request: Request, target: Target, resource: Resource) -> Done:
    """POST of a Binding: what a scheduler does."""
    dry = request.dry_run("CreateOptions")
    node = (request.object().get("target") or {}).get("name") or ""
    with writes.store.lock:
        pod = writes.existing(target, resource)
        obj = pod.object()
        there = obj["spec"].get("nodeName")
        if there:
            text = f'pod {target.name} is already assigned to node "{there}"'
            raise conflict("", "pods/binding", target.name, text)
        obj["spec"]["nodeName"] = node
        at = rfc3339(writes.now())
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": at}
        others = [item for item in obj["status"].get("conditions") or () if item["type"] != "PodScheduled"]
        obj["status"]["conditions"] = [*others, scheduled]
        if not dry:
            writes.store.write(resource.table, pod.name, obj)
    return 201, msgspec.json.encode(success()), not dry


def log(logs: dict[str, str], request: Request, target: Target, pod: Obj) -> bytes:
    """The log of a container, from the fixture's `logs`; empty for one that it does not name."""
    names = [item["name"] for item in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]]
    wanted = request.get("container") or (names[0] if len(names) == 1 else "")
    if not wanted:
        raise bad_request(
            f"a container name must be specified for pod {target.name}, choose one of: [{' '.join(names)}]"
        )
    if wanted not in names:
        raise bad_request(f"container {wanted} is not valid for pod {target.name}")
    lines = logs.get(f"{target.namespace}/{target.name}/{wanted}", "").splitlines(keepends=True)
    tail = request.number("tailLines")
    return "".join(lines if tail is None else lines[max(0, len(lines) - tail) :]).encode()
