#!/usr/bin/env python3
"""Write a deterministic PodList with exactly N container records, and its ground truth.

The pods look like a GPU Operator + HAMi installation (driver, toolkit, validator,
DCGM exporter, GFD, device plugins, HAMi scheduler, NFD, canary jobs).  Nothing is
random beyond ``random.Random(seed)`` and every digest is sha256("fixture:" + image),
so two runs with the same arguments write the same bytes.

    gen_podlist.py --containers 1000 --out pods.json --truth truth.json
    gen_podlist.py --containers 10000 --weight real --runtime mixed \
        --inject explicit-latest=3 --inject unresolved=2 --out pods.json --truth truth.json

A "record" is one init, regular or ephemeral container.  Injected ephemeral containers,
image volumes and evicted pods come on top of N.  ``--list-injections`` prints what can be injected
and the reason code that the ground truth then carries.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys


def digest(name: str, algo: str = "sha256") -> str:
    return getattr(hashlib, algo)(("fixture:" + name).encode()).hexdigest()


# (workload, namespace, owner kind, one pod per node, init images, main images)
OPERANDS = [
    (
        "nvidia-driver-daemonset",
        "gpu-operator",
        "DaemonSet",
        True,
        [("k8s-driver-manager", "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.11.0")],
        [("nvidia-driver-ctr", "nvcr.io/nvidia/driver:580.126.20-ubuntu22.04")],
    ),
    (
        "nvidia-container-toolkit-daemonset",
        "gpu-operator",
        "DaemonSet",
        True,
        [("driver-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3")],
        [("nvidia-container-toolkit-ctr", "nvcr.io/nvidia/k8s/container-toolkit:v1.19.1")],
    ),
    (
        "nvidia-operator-validator",
        "gpu-operator",
        "DaemonSet",
        True,
        [
            ("driver-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3"),
            ("toolkit-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3"),
            ("cuda-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3"),
            ("plugin-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3"),
        ],
        [("nvidia-operator-validator", "nvcr.io/nvidia/gpu-operator:v26.3.3")],
    ),
    (
        "nvidia-dcgm-exporter",
        "gpu-operator",
        "DaemonSet",
        True,
        [("toolkit-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3")],
        [("nvidia-dcgm-exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0-ubuntu22.04")],
    ),
    (
        "gpu-feature-discovery",
        "gpu-operator",
        "DaemonSet",
        True,
        [("toolkit-validation", "nvcr.io/nvidia/gpu-operator:v26.3.3")],
        [("gpu-feature-discovery", "nvcr.io/nvidia/k8s-device-plugin:v0.19.3")],
    ),
    (
        "hami-device-plugin",
        "hami-system",
        "DaemonSet",
        True,
        [],
        [("device-plugin", "docker.io/projecthami/hami:v2.9.0"), ("vgpu-monitor", "docker.io/projecthami/hami:v2.9.0")],
    ),
    (
        "hami-scheduler",
        "hami-system",
        "ReplicaSet",
        False,
        [],
        [
            ("kube-scheduler", "registry.k8s.io/kube-scheduler:v1.35.3"),
            ("vgpu-scheduler-extender", "docker.io/projecthami/hami:v2.9.0"),
        ],
    ),
    (
        "node-feature-discovery-worker",
        "gpu-operator",
        "DaemonSet",
        True,
        [],
        [("worker", "registry.k8s.io/nfd/node-feature-discovery:v0.18.3")],
    ),
    (
        "allocation-canary",
        "gpu-operator",
        "Job",
        False,
        [],
        [("cuda", "nvcr.io/nvidia/cuda@sha256:" + digest("nvcr.io/nvidia/cuda:12.9.1-base-ubuntu22.04"))],
    ),
]

# injection -> (reason code in the ground truth, audit verdict, what it needs)
INJECTIONS = {
    "explicit-latest": ("explicit-latest", "fail"),
    "init-latest": ("explicit-latest", "fail"),
    "ephemeral-tagless": ("implicit-latest", "fail"),
    "implicit-latest": ("implicit-latest", "fail"),
    "port-tagless": ("implicit-latest", "fail"),
    "latest-digest": ("explicit-latest", "fail"),
    "floating-alias": ("floating-alias", "fail"),
    "desired-sha512": ("bad-digest", "fail"),
    "desired-truncated": ("bad-digest", "fail"),
    "desired-uppercase": ("bad-digest", "fail"),
    "digest-mismatch": ("declared-digest-mismatch", "fail"),
    "unresolved": ("unresolved", "fail"),
    "no-status": ("unresolved", "fail"),
    "mutable-runtime": ("mutable-runtime", "fail"),
    "truncated-runtime": ("malformed-runtime", "fail"),
    "uppercase-runtime": ("malformed-runtime", "fail"),
    "sha512-runtime": ("malformed-runtime", "fail"),
    "config-runtime": ("config-digest-only", "pass"),
    "tag-divergence": ("tag-divergence", "fail"),
    "image-volume-tagless": ("implicit-latest", "fail"),
    "evicted": ("never-started", "fail"),
    "continue": ("incomplete-list", "error"),
    "missing-namespace": ("empty-scope", "error"),
}


def split_ref(image: str):
    """repository, tag, digest -- a colon belongs to the tag only after the last slash."""
    name, _, dig = image.partition("@")
    head, slash, leaf = name.rpartition("/")
    leaf, colon, tag = leaf.partition(":")
    return head + slash + leaf, tag if colon else "", dig


def runtime_id(runtime: str, repo: str, dig: str) -> str:
    if runtime == "docker":
        return f"docker-pullable://{repo}@sha256:{dig}"
    if runtime == "crio-raw":  # CRI-O 1.28 and 1.29, and later ones after a CRI-O restart before the fix
        return dig
    return f"{repo}@sha256:{dig}"


def container_id(runtime: str, key: str) -> str:
    scheme = {"docker": "docker", "crio": "cri-o", "crio-raw": "cri-o"}.get(runtime, "containerd")
    return f"{scheme}://{digest('cid:' + key)}"


REAL_ENV = [{"name": f"NVIDIA_SETTING_{i:02d}", "value": f"value-{i:02d}-" + "x" * 24} for i in range(14)]
REAL_MOUNTS = [
    {"name": f"vol-{i}", "mountPath": f"/run/nvidia/mount/{i}", "mountPropagation": "HostToContainer"} for i in range(9)
]
REAL_VOLUMES = [
    {"name": f"vol-{i}", "hostPath": {"path": f"/run/nvidia/{i}", "type": "DirectoryOrCreate"}} for i in range(9)
]
REAL_TOLERATIONS = [
    {"key": k, "operator": "Exists", "effect": "NoExecute"}
    for k in (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/unschedulable",
        "nvidia.com/gpu",
    )
]


STATUS = {
    "initContainers": "initContainerStatuses",
    "containers": "containerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}


class Gen:
    def __init__(self, args):
        self.list_meta = {"resourceVersion": "771"}
        self.a = args
        self.rng = random.Random(args.seed)
        self.records = 0
        self.pods = []
        self.truth = []
        self.targets = []  # (pod, list name, index) of every record, for injection

    # -- building -----------------------------------------------------------
    def runtime_for(self, node: int) -> str:
        if self.a.runtime != "mixed":
            return self.a.runtime
        return ("containerd", "containerd", "crio", "docker")[node % 4]

    def spec_container(self, name, image):
        c = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent"}
        if self.a.weight == "real":
            c["env"] = REAL_ENV
            c["volumeMounts"] = REAL_MOUNTS
            c["resources"] = {}
            c["securityContext"] = {"privileged": True}
            c["terminationMessagePath"] = "/dev/termination-log"
            c["terminationMessagePolicy"] = "File"
        return c

    def status_container(self, rt, key, name, image, init, done):
        repo, _, dig = split_ref(image)
        hexd = dig.split(":", 1)[1] if dig else digest(image)
        state = (
            {
                "terminated": {
                    "exitCode": 0,
                    "reason": "Completed",
                    "startedAt": "2026-08-20T08:00:00Z",
                    "finishedAt": "2026-08-20T08:00:09Z",
                }
            }
            if init or done
            else {"running": {"startedAt": "2026-08-20T08:00:10Z"}}
        )
        return {
            "name": name,
            "image": image,
            "imageID": runtime_id(rt, repo, hexd),
            "containerID": container_id(rt, key + "/" + name),
            "ready": not done,
            "restartCount": 0,
            "started": not (init or done),
            "state": state,
            "lastState": {},
        }

    def add_pod(self, operand, node, serial, room):
        wl, ns, owner, _per_node, inits, mains = operand
        inits, mains = list(inits), list(mains)
        while len(inits) + len(mains) > room:
            (inits or mains).pop(0)
        if not mains:
            mains, inits = inits[-1:], inits[:-1]
        if not mains:
            return
        rt = self.runtime_for(node)
        name = f"{wl}-{digest(f'{wl}/{node}/{serial}')[:5]}"
        key = f"{ns}/{name}"
        done = owner == "Job"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "namespace": ns,
                "name": name,
                "uid": f"{digest(key)[:8]}-0000-4000-8000-{digest(key)[8:20]}",
                "creationTimestamp": "2026-08-20T07:59:50Z",
                "labels": {"app": wl},
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": owner, "name": wl, "controller": True, "uid": digest(wl)[:8]}
                ],
            },
            "spec": {"nodeName": f"gpu-{node:04d}", "containers": [self.spec_container(n, i) for n, i in mains]},
            "status": {
                "phase": "Succeeded" if done else "Running",
                "containerStatuses": [self.status_container(rt, key, n, i, False, done) for n, i in mains],
            },
        }
        if inits:
            pod["spec"]["initContainers"] = [self.spec_container(n, i) for n, i in inits]
            pod["status"]["initContainerStatuses"] = [
                self.status_container(rt, key, n, i, True, done) for n, i in inits
            ]
        if self.a.weight == "real":
            pod["spec"].update(
                volumes=REAL_VOLUMES,
                tolerations=REAL_TOLERATIONS,
                priorityClassName="system-node-critical",
                serviceAccountName=wl,
                nodeSelector={"nvidia.com/gpu.present": "true"},
            )
            pod["status"]["conditions"] = [
                {"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": "2026-08-20T08:00:12Z"}
                for t in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ]
            pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/default-container": mains[0][0]}
        self.pods.append(pod)
        for lst, n in (("initContainers", len(inits)), ("containers", len(mains))):
            for i in range(n):
                self.targets.append((pod, lst, i))
                self.records += 1

    def build(self):
        node = 0
        serial = 0
        while self.records < self.a.containers:
            for op in OPERANDS:
                if self.records >= self.a.containers:
                    break
                if not op[3] and node % 50:
                    continue
                self.add_pod(op, node, serial, self.a.containers - self.records)
                serial += 1
            node += 1

    # -- injections ---------------------------------------------------------
    def note(self, pod, lst, name, reason, verdict, **extra):
        self.truth.append(
            dict(
                namespace=pod["metadata"]["namespace"],
                pod=pod["metadata"]["name"],
                kind={"initContainers": "init", "containers": "container", "ephemeralContainers": "ephemeral"}.get(
                    lst, lst
                ),
                container=name,
                reason=reason,
                audit=verdict,
                **extra,
            )
        )

    def pick(self, want=None):
        """Take one tagged container out of the pool, so that a finding never hits one twice."""
        pool = [
            i
            for i, (pod, lst, n) in enumerate(self.targets)
            if (want is None or lst == want) and "@" not in pod["spec"][lst][n]["image"]
        ]
        if not pool:
            sys.exit("not enough containers left to inject into")
        return self.targets.pop(self.rng.choice(pool))

    def inject(self, kind, count):
        reason, verdict = INJECTIONS[kind]
        if self.a.runtime == "crio-raw" and kind in ("digest-mismatch", "tag-divergence"):
            sys.exit(f"{kind} needs manifest digests; with crio-raw every image ID is a config digest, never compared")
        for n in range(count):
            getattr(self, "do_" + kind.replace("-", "_"))(kind, reason, verdict, n)

    def _edit(self, kind, reason, verdict, n, want=None, image=None, image_id=None):
        pod, lst, i = self.pick(want)
        c = pod["spec"][lst][i]
        s = pod["status"][STATUS[lst]][i]
        if image is not None:
            c["image"] = image(c["image"])
        if image_id is not None:
            s["imageID"] = image_id(s["imageID"], c["image"])
        self.note(pod, lst, c["name"], reason, verdict, injected=kind)

    def do_explicit_latest(self, *a):
        self._edit(*a, want="containers", image=lambda r: split_ref(r)[0] + ":latest")

    def do_init_latest(self, *a):
        self._edit(*a, want="initContainers", image=lambda r: split_ref(r)[0] + ":latest")

    def do_implicit_latest(self, *a):
        self._edit(*a, image=lambda r: split_ref(r)[0])

    def do_port_tagless(self, *a):
        self._edit(*a, image=lambda r: "registry.example:5000/" + split_ref(r)[0].split("/", 1)[1])

    def do_latest_digest(self, *a):
        self._edit(*a, image=lambda r: f"{split_ref(r)[0]}:latest@sha256:{digest(r)}")

    def do_floating_alias(self, *a):
        self._edit(*a, image=lambda r: split_ref(r)[0] + ":main-latest")

    def do_desired_sha512(self, *a):
        self._edit(*a, image=lambda r: f"{split_ref(r)[0]}@sha512:{digest(r, 'sha512')}")

    def do_desired_truncated(self, *a):
        self._edit(*a, image=lambda r: f"{split_ref(r)[0]}@sha256:{digest(r)[:63]}")

    def do_desired_uppercase(self, *a):
        self._edit(*a, image=lambda r: f"{split_ref(r)[0]}@sha256:{digest(r).upper()}")

    def do_digest_mismatch(self, *a):
        self._edit(*a, image=lambda r: f"{split_ref(r)[0]}@sha256:{digest('other:' + r)}")

    def do_unresolved(self, *a):
        self._edit(*a, image_id=lambda i, r: "")

    def do_no_status(self, kind, reason, verdict, n):
        pod, lst, i = self.pick()
        name = pod["spec"][lst][i]["name"]
        key = STATUS[lst]
        pod["status"][key] = [s for s in pod["status"][key] if s["name"] != name]
        # the remaining indexes of this list no longer line up: take its records out of the pool
        self.targets = [t for t in self.targets if not (t[0] is pod and t[1] == lst)]
        self.note(pod, lst, name, reason, verdict, injected=kind)

    def do_mutable_runtime(self, *a):
        self._edit(*a, image_id=lambda i, r: split_ref(r)[0] + ":v1")

    def do_truncated_runtime(self, *a):
        self._edit(*a, image_id=lambda i, r: f"{split_ref(r)[0]}@sha256:{digest(r)[:40]}")

    def do_uppercase_runtime(self, *a):
        self._edit(*a, image_id=lambda i, r: f"{split_ref(r)[0]}@sha256:{digest(r).upper()}")

    def do_sha512_runtime(self, *a):
        self._edit(*a, image_id=lambda i, r: f"{split_ref(r)[0]}@sha512:{digest(r, 'sha512')}")

    def do_config_runtime(self, *a):
        self._edit(*a, image_id=lambda i, r: "sha256:" + digest("config:" + r))

    def do_tag_divergence(self, *a):
        self._edit(*a, want="containers", image_id=lambda i, r: f"{split_ref(r)[0]}@sha256:{digest('repushed:' + r)}")

    def do_ephemeral_tagless(self, kind, reason, verdict, n):
        host = self.pods[self.rng.randrange(len(self.pods))]
        name = f"debugger-{n}"
        host["spec"].setdefault("ephemeralContainers", []).append({"name": name, "image": "docker.io/library/busybox"})
        host["status"].setdefault("ephemeralContainerStatuses", []).append(
            {
                "name": name,
                "image": "docker.io/library/busybox:latest",
                "imageID": "docker.io/library/busybox@sha256:" + digest("busybox"),
                "state": {"running": {}},
            }
        )
        self.note(host, "ephemeralContainers", name, reason, verdict, injected=kind)

    def do_image_volume_tagless(self, kind, reason, verdict, n):
        pod = self.pods[self.rng.randrange(len(self.pods))]
        pod["spec"].setdefault("volumes", [])
        pod["spec"]["volumes"] = pod["spec"]["volumes"] + [
            {
                "name": f"model-{n}",
                "image": {"reference": "registry.example/models/probe", "pullPolicy": "IfNotPresent"},
            }
        ]
        self.note(pod, "imageVolume", f"model-{n}", reason, verdict, injected=kind)

    def do_evicted(self, kind, reason, verdict, n):
        ns, name = "gpu-operator", f"nvidia-dcgm-exporter-evicted-{n}"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": ns, "name": name},
            "spec": {
                "nodeName": "gpu-0000",
                "containers": [
                    {
                        "name": "nvidia-dcgm-exporter",
                        "image": "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0-ubuntu22.04",
                    }
                ],
            },
            "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."},
        }
        self.pods.append(pod)
        self.note(pod, "containers", "nvidia-dcgm-exporter", reason, verdict, injected=kind)

    def do_continue(self, kind, reason, verdict, n):
        self.list_meta = {
            "resourceVersion": "771",
            "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi",
            "remainingItemCount": 40,
        }
        self.truth.append({"reason": reason, "audit": verdict, "injected": kind})

    def do_missing_namespace(self, kind, reason, verdict, n):
        self.pods = [p for p in self.pods if p["metadata"]["namespace"] != "hami-system"]
        self.truth = [t for t in self.truth if t.get("namespace") != "hami-system"]
        self.truth.append({"reason": reason, "audit": verdict, "injected": kind, "namespace": "hami-system"})


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--containers", type=int, default=1000)
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--runtime", default="containerd", choices=["containerd", "crio", "crio-raw", "docker", "mixed"])
    p.add_argument(
        "--weight",
        default="lean",
        choices=["lean", "real"],
        help="real adds env, mounts, tolerations and conditions (about 5x the bytes)",
    )
    p.add_argument(
        "--list-kind",
        default="PodList",
        choices=["PodList", "List"],
        help="the API returns PodList; kubectl get -o json writes List",
    )
    p.add_argument("--inject", action="append", default=[], metavar="KIND=COUNT")
    p.add_argument("--out", default="-")
    p.add_argument("--truth", help="write the ground truth (one entry per injected finding) here")
    p.add_argument("--indent", type=int, default=None)
    p.add_argument("--list-injections", action="store_true")
    a = p.parse_args(argv)
    if a.list_injections:
        for k, (reason, verdict) in INJECTIONS.items():
            print(f"{k:24s} reason={reason:26s} audit={verdict}")
        return 0
    g = Gen(a)
    g.build()
    for item in a.inject:
        kind, _, count = item.partition("=")
        if kind not in INJECTIONS:
            p.error(f"unknown injection {kind!r}; see --list-injections")
        g.inject(kind, int(count or 1))
    doc = {"apiVersion": "v1", "kind": a.list_kind, "metadata": g.list_meta, "items": g.pods}
    if a.list_kind == "PodList":  # items of a typed list carry no kind of their own
        for pod in g.pods:
            pod.pop("apiVersion"), pod.pop("kind")
    text = json.dumps(doc, indent=a.indent, separators=None if a.indent else (",", ":")) + "\n"
    if a.out == "-":
        sys.stdout.write(text)
    else:
        with open(a.out, "w") as out:
            out.write(text)
    if a.truth:
        worst = (
            "error"
            if any(t["audit"] == "error" for t in g.truth)
            else "fail"
            if any(t["audit"] == "fail" for t in g.truth)
            else "pass"
        )
        with open(a.truth, "w") as f:
            json.dump(
                {
                    "args": {k: v for k, v in vars(a).items() if k not in ("out", "truth")},
                    "pods": len(g.pods),
                    "base_records": g.records,
                    "expect": {"audit": worst, "exit": {"pass": 0, "fail": 1, "error": 2}[worst]},
                    "findings": g.truth,
                },
                f,
                indent=1,
            )
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
