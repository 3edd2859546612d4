"""A real control plane on loopback: kube-apiserver, controller manager, scheduler, etcd, and kwok as the kubelets.

    with controlplane.start() as plane: ...        in a test
    python -m tests.envtest.controlplane           by hand: prints KUBECONFIG, ends with Ctrl-C

The five processes belong to a supervisor of their own. It ends them and removes their folder when its standard input
closes, so also when the test process is killed; when the supervisor itself is killed, the kernel ends them.
RBAC is on. ServiceAccount admission is off, as in other envtest harnesses, so that a pod needs no account made first.
kwok plays the nodes that carry the annotation `kwok.x-k8s.io/node: fake`; other nodes have no kubelet.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import secrets
import select
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import ports
from tests.tools import build

STAGES = Path(__file__).parent / "stages"
REHEARSAL = "gpurunbook.io/rehearsal"
HOLD = "envtest.gpurunbook.io/hold"
"""Annotation that keeps a pod as it is: Pending on its node, or Terminating."""

READY_SECONDS = 180.0
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"]
  - level: None
    users: [kwok, harness, kubernetes-admin]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
"""


class ControlPlaneError(Exception):
    """The control plane did not start; the message ends with what the program wrote last."""


def assets() -> Path:
    """The folder of the programs: KUBEBUILDER_ASSETS, else what `make envtest` built from this checkout's pins.

    Raises tests.tools.build.BuildError when one is missing.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return build.programs("envtest")
    for name in COMPONENTS:
        if not os.access(Path(named) / name, os.X_OK):
            raise build.BuildError(f"KUBEBUILDER_ASSETS={named} has no {name}; unset it and run `make envtest`")
    return Path(named)


# --- certificates and kubeconfigs


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ControlPlaneError(f"openssl {arguments[0]}: {done.stderr.strip()}")


_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _authority(pki: Path) -> None:
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    subject = ("-subj", "/CN=envtest", "-days", "2")
    _openssl("req", "-x509", *_KEY, *subject, *usage, "-keyout", pki / "ca.key", "-out", pki / "ca.crt")


def _certificate(pki: Path, stem: str, name: str, groups: tuple[str, ...], extensions: str) -> None:
    """Writes `<stem>.key` and `<stem>.crt`, signed by the authority."""

    def escaped(text: str) -> str:
        return re.sub(r"([\\/+])", r"\\\1", text)

    subject = "".join(f"/O={escaped(group)}" for group in groups) + f"/CN={escaped(name)}"
    request, details = pki / f"{stem}.csr", pki / f"{stem}.ext"
    details.write_text(f"authorityKeyIdentifier=keyid\n{extensions}\n")
    _openssl("req", "-utf8", *_KEY, "-subj", subject, "-keyout", pki / f"{stem}.key", "-out", request)
    signer = ("-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-set_serial", f"0x{secrets.token_hex(8)}")
    _openssl("x509", "-req", "-in", request, *signer, "-days", "2", "-extfile", details, "-out", pki / f"{stem}.crt")


def _kubeconfig(pki: Path, url: str, name: str, user: dict[str, str]) -> str:
    """A kubeconfig that holds all that it needs, so that it can be copied anywhere."""
    cluster = {"server": url, "certificate-authority-data": _base64(pki / "ca.crt")}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "envtest", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": "envtest", "user": name}}],
            "current-context": name,
        },
        indent=1,
        sort_keys=True,
    )


def _base64(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def _user(folder: Path, url: str, name: str, groups: tuple[str, ...]) -> Path:
    pki, stem = folder / "pki", f"user-{secrets.token_hex(4)}"
    _certificate(pki, stem, name, groups, "extendedKeyUsage=clientAuth")
    user = {
        "client-certificate-data": _base64(pki / f"{stem}.crt"),
        "client-key-data": _base64(pki / f"{stem}.key"),
    }
    return _private(folder / "kubeconfigs" / f"{stem}.kubeconfig", _kubeconfig(pki, url, name, user))


def _private(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    return file


# --- what tests hold


@dataclass
class ControlPlane:
    """A control plane that runs. `kubeconfig` is an administrator's who may also impersonate."""

    folder: Path
    url: str
    etcd: str
    kubeconfig: Path
    pids: dict[str, int]
    _supervisor: subprocess.Popen[str] = field(repr=False)

    def user(self, name: str, *groups: str) -> Path:
        """Writes a kubeconfig with a new client certificate for that user and those groups, and gives its path."""
        return _user(self.folder, self.url, name, groups)

    def token(self, name: str) -> Path:
        """Writes a kubeconfig with a bearer token of one of the users `oncall` and `approver`, and gives its path.

        Their API names are `<name>@example.com`, their groups `sre` and `sre-leads`.
        """
        tokens = json.loads((self.folder / "tokens.json").read_text())
        text = _kubeconfig(self.folder / "pki", self.url, name, {"token": tokens[name]})
        return _private(self.folder / "kubeconfigs" / f"token-{name}.kubeconfig", text)

    def requests(self, user: str = "") -> list[dict[str, Any]]:
        """Every request that users made, oldest first, as audit events; those of the control plane and the
        administrator are left out."""
        whole = (self.folder / "audit.log").read_text().rpartition("\n")[0]  # the last line may be half written
        events = [json.loads(line) for line in whole.splitlines()]
        return [e for e in events if e["stage"] == "ResponseComplete" and user in ("", e["user"]["username"])]

    def log(self, component: str) -> str:
        """What a component wrote so far."""
        return (self.folder / f"{component}.log").read_text(errors="replace")

    def compact(self) -> None:
        """Makes etcd forget every version before the present one, and the API server know it (within 15 s)."""
        # The API server compacts every five minutes and learns of it by this key (etcd3/compact.go).
        key = base64.b64encode(b"compact_rev_key").decode()
        revision = _etcd(self.etcd, "kv/range", {"key": key})["header"]["revision"]
        _etcd(self.etcd, "kv/put", {"key": key, "value": base64.b64encode(revision.encode()).decode()})
        _etcd(self.etcd, "kv/compaction", {"revision": revision, "physical": True})

    def stop(self) -> None:
        """Ends the five processes and removes their folder. A second call does nothing."""
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._supervisor.stdin.close()
        self._supervisor.wait(timeout=180)
        self._supervisor.stdout.close()

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _etcd(url: str, call: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{url}/v3/{call}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=180) as answer:
        return json.load(answer)


def start() -> ControlPlane:
    """Starts a control plane in a folder of its own and waits until it serves: 5 s on two free cores, 550 MB.

    Raises tests.tools.build.BuildError when a program is missing, ControlPlaneError when one does not come up.
    """
    assets()
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "tests.envtest.controlplane", "--pipe"],
        cwd=build.TESTS.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert supervisor.stdout is not None
    said = json.loads(supervisor.stdout.readline() or '{"error": "the supervisor ended without a word"}')
    if "error" in said:
        supervisor.communicate(timeout=180)
        raise ControlPlaneError(said["error"])
    folder = Path(said["folder"])
    return ControlPlane(folder, said["url"], said["etcd"], Path(said["kubeconfig"]), said["pids"], supervisor)


# --- the supervisor


def _die_with_parent() -> None:
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Supervisor:
    """Owns the five processes and their folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, assets()
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._held = [ports.held() for _ in range(3)]
        client, peer, secure = (held.getsockname()[1] for held in self._held)
        self.etcd, self.peer = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self.port, self.url = secure, f"https://127.0.0.1:{secure}"

    def launch(self, name: str, **flags: str | Path | int) -> None:
        line = [str(self.programs / name), *(f"--{key.replace('_', '-')}={value}" for key, value in flags.items())]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                line, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )

    def ended(self) -> str | None:
        """The name of a process that is gone though nobody ended it."""
        return next((name for name, process in self.running.items() if process.poll() is not None), None)

    def until(self, what: str, test: Callable[[], bool], deadline: float) -> None:
        while not test():
            gone = self.ended()
            if gone or time.monotonic() > deadline:
                suspect = gone or what
                tail = (self.folder / f"{suspect}.log").read_text(errors="replace")[-2000:]
                problem = "ended" if gone else f"is not ready after {READY_SECONDS:.0f} s"
                raise ControlPlaneError(f"{suspect} {problem}: {tail}")
            time.sleep(0.05)

    def up(self) -> dict[str, Any]:
        """Starts all and gives what tests need to know."""
        folder, pki = self.folder, self.folder / "pki"
        deadline = time.monotonic() + READY_SECONDS
        pki.mkdir()
        (folder / "kubeconfigs").mkdir()
        self.launch(
            "etcd",
            data_dir=folder / "etcd",
            listen_client_urls=self.etcd,
            advertise_client_urls=self.etcd,
            listen_peer_urls=self.peer,
            initial_advertise_peer_urls=self.peer,
            initial_cluster=f"default={self.peer}",
            unsafe_no_fsync="true",
            log_level="warn",
        )
        _authority(pki)
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc\nextendedKeyUsage=serverAuth"
        _certificate(pki, "server", "kube-apiserver", (), names)
        _openssl("genrsa", "-out", pki / "accounts.key", "2048")
        (folder / "audit-policy.yaml").write_text(AUDIT_POLICY)
        tokens = {name: secrets.token_urlsafe(24) for name in ("oncall", "approver")}
        _private(folder / "tokens.json", json.dumps(tokens))
        rows = [
            f'{tokens["oncall"]},oncall@example.com,,"sre"',
            f'{tokens["approver"]},approver@example.com,,"sre-leads"',
        ]
        _private(folder / "tokens.csv", "\n".join(rows) + "\n")
        self.launch(
            "kube-apiserver",
            etcd_servers=self.etcd,
            bind_address="127.0.0.1",
            advertise_address="127.0.0.1",
            secure_port=self.port,
            tls_cert_file=pki / "server.crt",
            tls_private_key_file=pki / "server.key",
            client_ca_file=pki / "ca.crt",
            token_auth_file=folder / "tokens.csv",
            service_account_issuer="https://kubernetes.default.svc",
            service_account_key_file=pki / "accounts.key",
            service_account_signing_key_file=pki / "accounts.key",
            service_cluster_ip_range="10.96.0.0/16",
            authorization_mode="RBAC",
            disable_admission_plugins="ServiceAccount",
            endpoint_reconciler_type="none",
            allow_privileged="true",
            audit_policy_file=folder / "audit-policy.yaml",
            audit_log_path=folder / "audit.log",
            audit_log_mode="blocking",
            profiling="false",
        )
        harness = self.client("harness", "system:masters")
        kubeconfig = _user(folder, self.url, "kubernetes-admin", ("system:masters",))
        others = {
            name: _user(folder, self.url, user, groups)
            for name, user, groups in (
                ("kube-controller-manager", "system:kube-controller-manager", ()),
                ("kube-scheduler", "system:kube-scheduler", ()),
                ("kwok", "kwok", ("system:masters",)),
            )
        }
        self.until("kube-apiserver", lambda: harness("GET", "/readyz") is not None, deadline)
        self.launch(
            "kube-controller-manager",
            kubeconfig=others["kube-controller-manager"],
            leader_elect="false",
            secure_port=0,
            use_service_account_credentials="true",
            service_account_private_key_file=pki / "accounts.key",
            root_ca_file=pki / "ca.crt",
        )
        self.launch("kube-scheduler", kubeconfig=others["kube-scheduler"], leader_elect="false", secure_port=0)
        stages = "\n---\n".join(file.read_text() for file in sorted(STAGES.glob("*.yaml")))
        (folder / "stages.yaml").write_text(stages)
        self.launch(
            "kwok",
            kubeconfig=others["kwok"],
            config=folder / "stages.yaml",
            manage_all_nodes="false",
            manage_nodes_with_annotation_selector="kwok.x-k8s.io/node=fake",
            node_port=0,
            node_lease_duration_seconds=40,
            node_ip="127.0.0.1",
        )
        mark = {"metadata": {"annotations": {REHEARSAL: "envtest"}}}
        place = "/api/v1/namespaces/kube-system"
        self.until("kube-apiserver", lambda: harness("PATCH", place, mark) is not None, deadline)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.until("kube-controller-manager", lambda: harness("GET", account) is not None, deadline)
        pids = {name: process.pid for name, process in self.running.items()}
        return {
            "folder": str(folder),
            "url": self.url,
            "etcd": self.etcd,
            "kubeconfig": str(kubeconfig),
            "pids": pids,
        }

    def client(self, name: str, group: str) -> Callable[..., bytes | None]:
        """A caller that gives the body of a good answer, else None."""
        _certificate(self.folder / "pki", name, name, (group,), "extendedKeyUsage=clientAuth")
        pki = self.folder / "pki"
        secure = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        secure.load_cert_chain(pki / f"{name}.crt", pki / f"{name}.key")

        def call(method: str, path: str, patch: Any = None) -> bytes | None:
            data = None if patch is None else json.dumps(patch).encode()
            headers = {"Content-Type": "application/merge-patch+json"}
            request = urllib.request.Request(self.url + path, data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=10, context=secure) as answer:
                    body: bytes = answer.read()
                    return body
            except OSError:  # refused, not yet found, not yet ready
                return None

        return call

    def down(self) -> None:
        """Ends all, the clients of the API server first."""
        for name in reversed(COMPONENTS):
            process = self.running.get(name)
            if process is None:
                continue
            process.terminate()
            try:
                process.wait(timeout=2)
            except subprocess.TimeoutExpired:  # the API server waits for open watches
                process.kill()
                process.wait()
        for held in self._held:
            held.close()


def main() -> int:
    """Starts a control plane, says how to reach it, and keeps it until standard input or the terminal ends it."""
    piped = sys.argv[1:] == ["--pipe"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    folder = Path(tempfile.mkdtemp(prefix="gpurunbook-envtest-"))
    supervisor = None
    try:
        supervisor = Supervisor(folder)
        said = supervisor.up()
        print(json.dumps(said) if piped else f"export KUBECONFIG={said['kubeconfig']}", flush=True)
        for _ in _watch(piped):
            gone = supervisor.ended()
            if gone:
                print(f"{gone} ended: {(folder / f'{gone}.log').read_text(errors='replace')[-2000:]}", file=sys.stderr)
                return 1
    except (ControlPlaneError, build.BuildError) as error:
        print(json.dumps({"error": str(error)}) if piped else f"error: {error}", flush=True)
        return 1
    finally:
        if supervisor is not None:
            supervisor.down()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _watch(piped: bool) -> Iterator[None]:
    """Ticks until standard input ends; without a pipe, for ever."""
    while True:
        readable = select.select([sys.stdin] if piped else [], [], [], 0.5)[0]
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return
        yield


if __name__ == "__main__":
    sys.exit(main())
