"""Run one actor against the API server of a kubeconfig, until it is done or ended."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from pathlib import Path

from gpurunbook.embedded.actors import ACTORS, build, keep_at_it
from gpurunbook.embedded.actors.client import Client


def main() -> int:
    """Returns 0 when the actor is done, 2 for a bad parameter."""
    parser = argparse.ArgumentParser(prog="python -m gpurunbook.embedded.actors", description=__doc__)
    parser.add_argument("name", choices=sorted(ACTORS))
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--context", default="")
    parser.add_argument("--parameters", default="{}", help="a JSON object")
    parser.add_argument(
        "--until-eof", action="store_true", help="end when standard input does: with whoever started it"
    )
    options = parser.parse_args()
    try:
        act = build(options.name, json.loads(options.parameters))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.until_eof:
        threading.Thread(target=_end_with_input, daemon=True).start()
    keep_at_it(act, Client.of_kubeconfig(options.kubeconfig, options.context))
    return 0


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
