"""A connection to a server of ours, past any proxy."""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

from rig.errors import RigError


def open_connection(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """A connection, not yet made, to the host and port of http(s)://HOST:PORT.

    Of an https server the certificate is not checked: a box asks itself, by another name than the
    public one that the certificate is made out to.

    Raises:
        RigError: it is no such address.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme not in ("http", "https") or not host:
        raise RigError("this is no server's address", where=url, next_step="http://HOST:PORT")
    if parts.scheme == "https":
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)
