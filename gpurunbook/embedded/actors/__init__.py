"""Actors: ordinary API clients that play kubelets, controllers and other people, on any API server.

They run as threads of an embedded server (`actors` in cluster.yaml), or against any API server as
`python -m gpurunbook.embedded.actors NAME --kubeconfig FILE`.
"""

from __future__ import annotations

import http.client
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from gpurunbook.embedded.actors.client import Client, Refused

# name: module and class; a class is a msgspec struct of parameters with a method `act(client)`
ACTORS = {
    "cordoner": "people:Cordoner",
    "daemonset-controller": "daemonsets:DaemonSetController",
    "editor": "editor:Editor",
    "fights-cordon": "people:FightsCordon",
    "kubelet": "kubelet:Kubelet",
    "lands-pods": "people:LandsPods",
    "node-rejoin": "people:NodeRejoin",
}
_PAUSE = 0.2


def build(name: str, parameters: dict[str, Any]) -> Callable[[Client], None]:
    """The actor's work as a function. Raises ValueError for an unknown name or parameter."""
    if name not in ACTORS:
        raise ValueError(f"no actor {name!r}; there are {', '.join(sorted(ACTORS))}")
    module, _, kind = ACTORS[name].partition(":")
    try:
        actor = msgspec.convert(parameters, getattr(import_module(f"{__name__}.{module}"), kind))
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from error
    act: Callable[[Client], None] = actor.act
    return act


def keep_at_it(act: Callable[[Client], None], client: Client) -> None:
    """Run until the work is done; a server that refuses or is away for a moment is asked again."""
    while True:
        try:
            return act(client.again())
        except (OSError, http.client.HTTPException, Refused, ValueError) as error:
            print(f"actor: {error!r}, trying again", file=sys.stderr, flush=True)
            time.sleep(_PAUSE)


def start(name: str, parameters: dict[str, Any], client: Client, done: Callable[[], None]) -> threading.Thread:
    """Start an actor as a thread that ends with the process; `done` is called when it has nothing left to do."""
    act = build(name, parameters)

    def run() -> None:
        keep_at_it(act, client)
        done()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
