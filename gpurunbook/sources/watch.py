"""Following collections and objects: list, then watch, each in a thread, until the caller has seen enough."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3

from gpurunbook.errors import ClusterError, Garbled, Gone, InputError
from gpurunbook.plan import Need, Object, Observed, Pages, Problem
from gpurunbook.sources.cluster import Cluster
from gpurunbook.sources.connection import PATIENCE_SECONDS, raise_for
from gpurunbook.supply import strictjson

WATCH_SECONDS = 240
"""Asked of the server as `timeoutSeconds`; then the watch is opened again where it was."""

SILENCE_SECONDS = 30.0
"""Without a byte for so long (bookmarks included), the connection is taken for dead and opened again."""

PAUSE_SECONDS = 1.0
"""Between two lists, when watching does not work."""

BARREN = 3
"""Watches one after the other that end at once and bring nothing; then the collection is listed anew instead."""


class _Stream(threading.Thread):
    """One need: its items by uid, kept current. Puts a token on the queue at every change."""

    def __init__(self, name: str, need: Pages | Object, cluster: Cluster, changed: queue.Queue[str]) -> None:
        super().__init__(name=f"watch-{name}", daemon=True)
        self.key = name
        self._need = need
        self._cluster = cluster
        self._changed = changed
        self._items: dict[str, Any] = {}
        self._problem: Problem | None = Problem("not-read", "not read yet")
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._response: urllib3.BaseHTTPResponse | None = None
        collection, query = _collection(need)
        self._pages = Pages(collection, None, query)
        self._kind = _item_type(need)
        self._barren = 0

    def observed(self) -> Observed:
        with self._lock:
            if self._problem is not None:
                return Observed(self._need, problem=self._problem)
            items = list(self._items.values())
        if isinstance(self._need, Pages):
            return Observed(self._need, items)
        if not items:
            return Observed(self._need, problem=Problem("not-found", f"GET {self._need.path}: it is not there"))
        return Observed(self._need, items[0])

    def stop(self) -> None:
        self._ending.set()
        response = self._response
        if response is not None:
            # It may have ended by itself meanwhile.
            with contextlib.suppress(RuntimeError, ValueError, OSError):
                response.shutdown()

    def run(self) -> None:
        while not self._ending.is_set():
            pause = PAUSE_SECONDS
            listed = False
            try:
                version = self._list()
                listed = True
                while self._barren < BARREN and not self._ending.is_set():
                    version = self._watch(version)
            except Gone as wrong:
                if not listed:
                    self._note(Problem(wrong.code, str(wrong)))
                elif self._barren <= 1:
                    pause = 0.0
            except ClusterError as wrong:
                self._note(Problem(wrong.code, str(wrong)))
                pause = min(max(wrong.retry_after or 0.0, pause), PATIENCE_SECONDS)
            except Exception as wrong:
                self._note(Problem("watch-broken", f"{type(wrong).__name__}: {wrong}"))
            self._barren = min(self._barren, BARREN - 1)
            self._ending.wait(pause)

    def _list(self) -> str:
        items, version = self._cluster.listed(self._pages)
        try:
            found = {str(item["metadata"]["uid"]): self._typed(item) for item in items}
        except (KeyError, TypeError, InputError) as wrong:
            raise Garbled(f"not a list of objects: {wrong!r}", subject=f"GET {self._pages.path}") from None
        if not version:
            raise Garbled("the list has no resourceVersion to watch from", subject=f"GET {self._pages.path}")
        with self._lock:
            self._items, self._problem = found, None
        self._changed.put(self.key)
        return version

    def _watch(self, version: str) -> str:
        query = [
            *self._pages.query,
            ("watch", "1"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(WATCH_SECONDS)),
        ]
        what = f"WATCH {self._pages.path}"
        begin = time.monotonic()
        self._barren += 1
        response = self._cluster.connection.stream(self._pages.path, query, SILENCE_SECONDS, what)
        self._response = response
        try:
            if self._ending.is_set():
                return version
            if response.status == 401 and self._barren == 1:
                self._cluster.connection.renew()
                return version
            if response.status != 200:
                raise_for(response.status, response.read(1 << 16), response.headers, what)
            for line in _lines(response):
                if self._ending.is_set():
                    break
                version = self._event(line, what) or version
                self._barren = 0
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            # A watch may end at any time; it goes on from the last resourceVersion.
            pass
        finally:
            self._response = None
            response.close()
        if time.monotonic() - begin >= PAUSE_SECONDS:
            self._barren = 0
        elif self._barren:
            self._ending.wait(0.05)
        return version

    def _event(self, line: bytes, what: str) -> str:
        try:
            event = json.loads(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                raise_for(int(item.get("code") or 500), json.dumps(item).encode(), {}, what)
            version = str(item["metadata"]["resourceVersion"])
            if kind == "BOOKMARK":
                return version
            uid = str(item["metadata"]["uid"])
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                raise KeyError(kind)
            typed = self._typed(item) if kind != "DELETED" else None
        except (KeyError, TypeError, AttributeError, InputError) as wrong:
            raise Garbled(f"not a watch event: {wrong!r}", subject=what) from None
        with self._lock:
            if typed is None:
                self._items.pop(uid, None)
            else:
                self._items[uid] = typed
        self._changed.put(self.key)
        return version

    def _typed(self, item: Any) -> Any:
        return item if self._kind is None else strictjson.typed(item, self._kind)

    def _note(self, problem: Problem) -> None:
        with self._lock:
            self._problem = problem
        self._changed.put(self.key)


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    while part := response.read1(1 << 16):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line for line in lines if line)


def _collection(need: Pages | Object) -> tuple[str, tuple[tuple[str, str], ...]]:
    if isinstance(need, Pages):
        return need.path, need.query
    collection, _, name = need.path.rpartition("/")
    return collection, (("fieldSelector", f"metadata.name={name}"),)


def _item_type(need: Pages | Object) -> Any:
    page = need.page if isinstance(need, Pages) else None
    if page is None:
        return None
    kind = typing.get_type_hints(page)["items"]
    for option in typing.get_args(kind):
        if typing.get_origin(option) is list:
            kind = option
    return typing.get_args(kind)[0]


@contextmanager
def follow(cluster: Cluster, needs: Mapping[str, Need]) -> Iterator[Callable[[float], dict[str, Observed]]]:
    """Writes nothing. Follows the needs until the block ends.

    Gives a function that waits up to so many seconds for a change, and returns all that is known now. A need that
    could not be read yet, or no longer, is an Observed with a problem: it never looks like an empty list.
    """
    changed: queue.Queue[str] = queue.Queue()
    streams: list[_Stream] = []
    for name, need in needs.items():
        if not isinstance(need, Pages | Object):
            raise TypeError(f"cannot be followed: {need!r}")
        streams.append(_Stream(name, need, cluster, changed))

    def after(seconds: float) -> dict[str, Observed]:
        try:
            changed.get(timeout=max(seconds, 0.0))
            while True:
                changed.get_nowait()
        except queue.Empty:
            pass
        return {stream.key: stream.observed() for stream in streams}

    begun: list[_Stream] = []
    try:
        for stream in streams:
            begun.append(stream)
            stream.start()
        yield after
    finally:
        for stream in begun:
            stream.stop()
        end = time.monotonic() + 1.0
        for stream in begun:
            if stream.ident is not None:  # an interrupt may come before it has begun
                stream.join(max(0.0, end - time.monotonic()))
