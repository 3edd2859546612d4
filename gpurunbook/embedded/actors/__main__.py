"""Run one actor against the API server of a kubeconfig, until it is done or ended."""

from __future__ import annotations

import argparse
import json
import sys
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
    options = parser.parse_args()
    try:
        act = build(options.name, json.loads(options.parameters))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    keep_at_it(act, Client.of_kubeconfig(options.kubeconfig, options.context))
    return 0


if __name__ == "__main__":
    sys.exit(main())
