"""The server process: builds the store, tells that it is ready, serves, and leaves the state behind."""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import msgspec
import yaml

from gpurunbook.embedded.access import User, Users
from gpurunbook.embedded.actors import build, start
from gpurunbook.embedded.actors.client import Client
from gpurunbook.embedded.api import Api, admin
from gpurunbook.embedded.faults import Faults
from gpurunbook.embedded.fixture import ActorSpec, Config, FixtureError, Seed
from gpurunbook.embedded.journal import RequestLog
from gpurunbook.embedded.resources import CRDS, Catalog
from gpurunbook.embedded.seed import fill
from gpurunbook.embedded.server import Server
from gpurunbook.embedded.store import Store


def _private(path: Path, data: bytes) -> None:
    """Put a file in place as a whole, readable by its owner only."""
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    fresh.replace(path)


def _tokens(state: Path, config: Config) -> dict[str, str]:
    """The tokens by name: those of the fixture, and random ones that are kept with the state."""
    file = state / "tokens.json"
    kept: dict[str, str] = msgspec.json.decode(file.read_bytes()) if file.exists() else {}
    names = ["admin", *(user.name for user in config.users), *(f"actor/{actor.name}" for actor in config.actors)]
    given = {user.name: user.token for user in config.users if user.token}
    tokens = {name: given.get(name) or kept.get(name) or secrets.token_urlsafe(24) for name in names}
    _private(file, msgspec.json.encode(tokens))
    return tokens


def _users(config: Config, tokens: dict[str, str]) -> list[User]:
    made = [admin(tokens["admin"])]
    for spec in config.users:
        groups = (*spec.groups, "system:authenticated")
        limits = (spec.expires.after_requests, spec.expires.after_seconds)
        made.append(User(spec.username or spec.name, groups, tokens[spec.name], spec.name, *limits))
    for actor in config.actors:
        name = actor.username or f"system:gpurunbook:actor:{actor.name}"
        made.append(User(name, ("system:masters",), tokens[f"actor/{actor.name}"], f"actor/{actor.name}", actor=True))
    return made


def _kubeconfig(url: str, config: Config, tokens: dict[str, str]) -> bytes:
    names = [*(user.name for user in config.users), "admin"]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": config.name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": tokens[name]}} for name in names],
        "contexts": [{"name": f"{n}@{config.name}", "context": {"cluster": config.name, "user": n}} for n in names],
        "current-context": f"{names[0]}@{config.name}",
    }
    return yaml.safe_dump(document, sort_keys=True).encode()


def _bind(state: Path, make: Callable[[int], Server]) -> Server:
    """On the port of the last time where it is free, so that kubeconfigs that were copied go on working."""
    port = state / "port"
    try:
        server = make(int(port.read_text()) if port.exists() else 0)
    except OSError:
        server = make(0)
    _private(port, str(server.server_port).encode())
    return server


def _known(actor: ActorSpec) -> None:
    try:
        build(actor.name, actor.parameters)
    except ValueError as error:
        raise FixtureError(f"cluster.yaml: actors: {error}") from error


def run(state: Path, seed: Seed, idle: float, tell: int) -> int:
    """Serve until idle or stopped. Writes `ready` to the file descriptor `tell` when server.json is there."""
    config = seed.config
    for actor in config.actors:
        _known(actor)
    catalog, store = Catalog(), Store(config.history)
    fill(store, catalog, seed)
    store.open_log(state / "objects.log")
    for entry in store.all(CRDS):
        catalog.define(entry.name[1], entry.object())
    tokens = _tokens(state, config)
    users = Users(_users(config, tokens))
    log = RequestLog(state / "requests.jsonl")
    api = Api(config, store, catalog, users)
    faults = Faults(config.faults)
    server = _bind(state, lambda port: Server(port, api, faults, log, tokens["admin"], idle))
    url = f"http://127.0.0.1:{server.server_port}"

    def stop(_signal: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    _private(state / "kubeconfig", _kubeconfig(url, config, tokens))
    ready = {"kubeconfig": str(state / "kubeconfig"), "pid": os.getpid(), "token": tokens["admin"], "url": url}
    _private(state / "server.json", msgspec.json.encode(ready) + b"\n")
    threading.Thread(target=server.watch_idle, daemon=True).start()
    for number, actor in enumerate(config.actors):
        over = state / f"actor-{number}.done"  # what was done once is not done again after a restart
        if not over.exists():
            headers = {"Authorization": f"Bearer {tokens[f'actor/{actor.name}']}"}
            start(actor.name, actor.parameters, Client(url, headers), over.touch)
    os.write(tell, b"ready")
    os.close(tell)
    try:
        server.serve_forever(poll_interval=0.1)
    finally:
        (state / "server.json").unlink(missing_ok=True)
        server.server_close()
        store.close()
        server.drain()
        log.close()
    return 0
