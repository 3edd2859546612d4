"""Whole runs without a kernel: a home, a cluster of many nodes, and the steps of node_cordon in the order of its cells.

One server is shared by the tests of a module; each test takes a node of its own, so that none disturbs another.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_server import SMALL, Embedded, start, stop

import gpurunbook as rb
from gpurunbook import errors
from gpurunbook.declared.runbooks import declared
from gpurunbook.journal import Record, State, read, replay
from gpurunbook.nodes.cordon import ANNOTATION, TAINT, toleration
from gpurunbook.runbook.run import Run
from gpurunbook.runbook.start import open_run

LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-operator/leases"
CORDON_STEPS = ("whose", "holders", "capacity", "daemonsets", "hands", "mark", "settled", "again")
JSON_MERGE = "application/merge-patch+json"
GIVEN = {"change_id": "CHG-7", "reason": "a fan is broken"}


def cluster_text(nodes: int, users: list[dict[str, Any]] | None = None, **more: Any) -> str:
    """cluster.yaml of the small fixture with other numbers; its DaemonSets tolerate our taint."""
    text = yaml.safe_load((SMALL / "cluster.yaml").read_text())
    text["name"] = "many"
    text["generate"] |= {"nodes": nodes}
    text["objects"] = [str(path) for path in sorted(SMALL.glob("*.yaml")) if path.name != "cluster.yaml"]
    text["users"] = text["users"] + (users or [])
    tolerant = {"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}, toleration()]}}}}
    text["patches"] = [
        {"target": f"DaemonSet/{d['metadata']['namespace']}/{d['metadata']['name']}", "merge": tolerant}
        for path in text["objects"]
        for d in yaml.safe_load_all(Path(path).read_text())
        if d and d["kind"] == "DaemonSet"
    ]
    return yaml.safe_dump({**text, **more})


def seeded(folder: Path, nodes: int = 3, users: list[dict[str, Any]] | None = None, **more: Any) -> Embedded:
    """A server with its own state and a fixture of many nodes. objects: further documents by file name."""
    objects = more.pop("documents", {})
    fixture = folder / "fixture"
    fixture.mkdir(parents=True)
    (fixture / "cluster.yaml").write_text(cluster_text(nodes, users, **more))
    for name, documents in objects.items():
        (fixture / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    return start(folder / "state", fixture, idle=900)


@dataclass
class Lab:
    """A home with its folder of runs, and the server that its runs go to."""

    home: Path
    server: Embedded
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(2))
    context: str = ""

    @property
    def out(self) -> Path:
        return self.home / "outputs"

    @property
    def uid(self) -> str:
        return str(self.admin.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"])

    @property
    def admin(self) -> Any:
        return self.server.client()

    def enter(self, environment: pytest.MonkeyPatch) -> None:
        """Makes this the home and the cluster of the runs that a test opens."""
        environment.setenv("GPURUNBOOK_HOME", str(self.home))
        environment.setenv("GPURUNBOOK_OUT", str(self.out))
        environment.setenv("KUBECONFIG", str(self.server.state / "kubeconfig"))
        for name in ("GPURUNBOOK_RUN_DIR", "GPURUNBOOK_CLUSTERS"):
            environment.delenv(name, raising=False)

    def node(self) -> str:
        """A node that no other test uses, without a holder (the workloads of the fixture stand on the first)."""
        return f"gpu-{next(self.numbers):04d}"

    def open(self, book: str, **values: Any) -> Run:
        return open_run(declared(book), {"cluster": self.context, **values})

    def cordon(self, node: str, **values: Any) -> Run:
        return self.open("node_cordon", **{"node": node, "max_out": 999, "wait_seconds": 60, **GIVEN, **values})

    def planned(self, node: str, **values: Any) -> dict[str, Any]:
        """The parameters of an apply, by its dry run."""
        run = self.cordon(node, **values)
        finish(run)
        return {**values, "apply": True, "plan": closing(run)["plan"], "expect_cluster": self.uid}

    def applied(self, node: str, **values: Any) -> Run:
        """A run that has done its action."""
        run = self.cordon(node, **self.planned(node, **values))
        finish(run)
        return run

    def seen(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.call("GET", f"/api/v1/nodes/{node}")
        return found

    def change(self, node: str, patch: dict[str, Any]) -> None:
        """Another hand at the node."""
        self.admin.call("PATCH", f"/api/v1/nodes/{node}", patch, JSON_MERGE)

    def lease(self, node: str) -> dict[str, Any] | None:
        reply = self.admin.send("GET", f"{LEASES}/gpurunbook-node-{node}")
        return reply.body if reply.code == 200 else None

    def land(self, node: str, name: str, **spec: Any) -> None:
        """A pod that is bound to the node."""
        body = {
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/a:1"}], **spec},
        }
        self.admin.call("POST", "/api/v1/namespaces/default/pods", body)

    def holder(self, node: str, name: str = "trainer") -> None:
        """A pod that holds a GPU of the node."""
        container = {"name": "c", "image": "registry.example/a:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        self.land(node, f"{name}-{node}", containers=[container])

    def arm(self, match: dict[str, str], action: dict[str, Any], nth: int = 1, times: int = 1) -> None:
        self.server.control("POST", "faults", [{"match": match, "action": action, "nth": nth, "times": times}])

    def disarm(self) -> None:
        self.server.control("DELETE", "faults")

    @contextmanager
    def requests(self) -> Iterator[list[dict[str, Any]]]:
        """Filled with the requests of runs, at the end of the block."""
        entries = self.server.log()
        self.server.since = entries[-1]["n"] if entries else self.server.since
        found: list[dict[str, Any]] = []
        yield found
        found += [e for e in self.server.log() if e["user"] != "gpurunbook-admin" and not e["actor"]]


@contextmanager
def lab(folder: Path, **seed: Any) -> Iterator[Lab]:
    """A home in `folder` and its server, which ends with the block."""
    home = folder / "home"
    for name in ("runbooks", "parameters", "outputs"):
        (home / name).mkdir(parents=True)
    server = seeded(folder / "cluster", **seed)
    try:
        yield Lab(home, server)
    finally:
        stop(server.state)


def merged(path: Path, *servers: Embedded) -> str:
    """A kubeconfig with the contexts of several servers; the current one is of the first."""
    text: dict[str, Any] = {}
    for server in servers:
        one = yaml.safe_load((server.state / "kubeconfig").read_text())
        for user in one["users"]:
            user["name"] += str(server.state)
        for context in one["contexts"]:
            context["context"]["user"] += str(server.state)
        text = {key: text[key] + one[key] if isinstance(one[key], list) else text[key] for key in text} or one
    path.write_text(yaml.safe_dump(text))
    return str(path)


def step(run: Run, name: str) -> None:
    """One cell of node_cordon."""
    p = run.parameters
    match name:
        case "whose":
            run.check(name, rb.nodes.whose(p.node, p.action, run.id, p.max_out, p.plan))
        case "holders":
            run.check(name, rb.nodes.held(p.node, p.action, p.holders))
        case "capacity":
            run.check(name, rb.nodes.capacity_lost(p.node))
        case "daemonsets":
            run.check(name, rb.nodes.returns(p.node, p.action, p.taint))
        case "hands":
            run.check(name, rb.nodes.other_hands(p.node))
        case "mark":
            run.change(name, rb.nodes.mark(p.node, p.action, p.taint, p.holders))
        case "settled":
            run.wait(name, rb.nodes.settled(p.node, p.action, run.id, p.wait_seconds))
        case "again":
            run.check(name, rb.nodes.held_after(p.node, p.action, p.holders))
        case "close":
            run.close()
        case _:
            raise LookupError(name)


def finish(run: Run, *, until: str = "close") -> None:
    """The cells of node_cordon in order, up to and with `until`."""
    for name in (*CORDON_STEPS, "close"):
        step(run, name)
        if name == until:
            return


def rest(run: Run, after: str, *, close: bool = True) -> None:
    """The cells behind one of them, in order."""
    later = CORDON_STEPS[CORDON_STEPS.index(after) + 1 :]
    for name in (*later, "close") if close else later:
        step(run, name)


def records(run: Run) -> list[Record]:
    return read(run.folder / "journal.jsonl")


def state(run: Run) -> State:
    return replay(records(run))


def closing(run: Run) -> dict[str, Any]:
    found = state(run).closing
    assert found is not None
    return dict(found["data"])


def verdict(run: Run) -> tuple[str, str]:
    """Verdict and code of the last closing record."""
    return str(closing(run)["verdict"]), str(closing(run)["code"])


def only(out: Path) -> Path:
    """The folder of the last run: ids sort by time, and the last written wins within a second."""
    return max((p.parent for p in out.glob("*/run.json")), key=lambda p: (p / "run.json").stat().st_mtime_ns)


def ended(out: Path) -> dict[str, Any]:
    """What the last run's journal says of its end, for runs whose start failed."""
    found = replay(read(only(out) / "journal.jsonl")).closing
    assert found is not None
    return dict(found["data"])


def changed(entries: list[dict[str, Any]], name: str = "") -> list[tuple[str, str]]:
    """Method and path of what was persisted, in order; of objects with the name."""
    return [(e["method"], e["path"]) for e in entries if e["persisted"] and (not name or name in json.dumps(e))]


def owner(node: dict[str, Any]) -> str:
    """The run in the node's annotation."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    return str(json.loads(text)["run"]) if text else ""


def marks(node: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Unschedulable, tainted by us, owned by a run."""
    taints = node["spec"].get("taints") or []
    return node["spec"].get("unschedulable") is True, any(t["key"] == TAINT for t in taints), bool(owner(node))


def refuses(lab: Lab, node: str, values: dict[str, Any], code: str, *, at: str = "mark") -> None:
    """The apply is blocked with this code, at this step, and nothing of the target was touched."""
    before = lab.seen(node)
    with lab.requests() as seen, pytest.raises((errors.GateError, errors.Stopped)) as refused:
        finish(lab.cordon(node, **values))
    assert refused.value.code == code
    found = ended(lab.out)
    assert (found["verdict"], found["code"], found["step"]) == ("blocked", code, at)
    assert found["left_behind"] == []
    assert [c for c in changed(seen) if "/leases" not in c[1]] == []
    assert lab.seen(node) == before
    assert lab.lease(node) is None
