"""Ports on loopback for servers that must be told one before they start."""

from __future__ import annotations

import socket


def held() -> socket.socket:
    """A free port that nobody else is given while the socket is open: `getsockname()[1]`.

    It does not listen, and a server that sets SO_REUSEADDR binds beside it, as Go's and tornado's do (Linux, ip(7)).
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made
