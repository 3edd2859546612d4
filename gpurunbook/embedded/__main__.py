"""Start an embedded API server, or find the one that serves the state folder already.

Prints server.json. The server is a process of its own in its own session; it ends when it was idle for long.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from pathlib import Path

import msgspec

from gpurunbook.embedded.fixture import FixtureError, Seed, load

_START_SECONDS = 30.0


def _lock(state: Path) -> int | None:
    """The lock of the state folder, or None while a server has it."""
    fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _seed(state: Path, folder: Path | None) -> Seed:
    """The seed of the state folder; made from the fixture at the first start."""
    file = state / "seed.json"
    kept = file.read_bytes() if file.exists() else None
    if folder is None:
        if kept is None:
            raise FixtureError(f"{state}: nothing was seeded here yet; give --seed")
        return msgspec.json.decode(kept, type=Seed)
    seed = load(folder)
    raw = msgspec.json.encode(seed)
    if kept is None:
        fresh = state / "seed.json.new"
        fresh.write_bytes(raw)
        fresh.replace(file)
    elif kept != raw:
        text = f"{state}: was seeded from another fixture, or {folder} was changed since"
        raise FixtureError(f"{text}; remove the state folder to start over, or leave --seed out to go on")
    return seed


def _stop(state: Path) -> int:
    import http.client

    try:
        found = msgspec.json.decode((state / "server.json").read_bytes())
        connection = http.client.HTTPConnection(found["url"].removeprefix("http://"), timeout=5)
        connection.request("POST", "/_gpurunbook/stop", headers={"Authorization": f"Bearer {found['token']}"})
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass  # it ended between our looking and our asking
    end = time.monotonic() + 10
    while time.monotonic() < end:
        fd = _lock(state)
        if fd is not None:
            os.close(fd)
            return 0
        time.sleep(0.01)
    print(f"{state}: the server did not end in 10 seconds", file=sys.stderr)
    return 2


def _start(state: Path, lock: int, seed: Seed, idle: float) -> int:
    """Fork the server; come back when it is ready. Returns the exit code of the starter."""
    ready, tell = os.pipe()
    sys.stdout.flush()
    if os.fork():
        os.close(tell)
        os.close(lock)  # the child holds the same lock
        with os.fdopen(ready, "rb") as pipe:
            told = pipe.read()
        if told == b"ready":
            return 0
        print(told.decode() or f"the server ended before it was ready; see {state / 'server.log'}", file=sys.stderr)
        return 2
    os.close(ready)
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(state / "server.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(state)  # the starter's folder may go away
    from gpurunbook.embedded.process import run

    code = 2
    try:
        code = run(state, seed, idle, tell)
    except FixtureError as error:
        os.write(tell, str(error).encode())
    finally:
        os._exit(code)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 with server.json printed, 2 with the reason on stderr."""
    parser = argparse.ArgumentParser(prog="python -m gpurunbook.embedded", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder of this cluster's state")
    parser.add_argument("--seed", type=Path, help="fixture folder; may be left out when the state exists")
    parser.add_argument("--idle", type=float, default=600.0, help="end after so many seconds without requests")
    parser.add_argument("--stop", action="store_true", help="end the server of the state folder")
    options = parser.parse_args(arguments)
    state: Path = options.state.absolute()
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if options.stop:
        return _stop(state)
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        lock = _lock(state)
        if lock is not None:
            (state / "server.json").unlink(missing_ok=True)
            try:
                code = _start(state, lock, _seed(state, options.seed), options.idle)
            except FixtureError as error:
                print(error, file=sys.stderr)
                return 2
            if code:
                return code
        if (state / "server.json").exists():
            print((state / "server.json").read_text(), end="")
            return 0
        time.sleep(0.01)
    print(f"{state}: another process holds the lock and does not become ready", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
