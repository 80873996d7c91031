"""What a cloud's TPU machine tells about itself through its metadata server. Elsewhere nothing answers."""

from __future__ import annotations

import http.client
import os
import re
import socket
import threading
import time
from contextlib import closing
from http import HTTPStatus

from drumline.distribute.errors import ClusterError

#: A name that is known to its own network only: elsewhere it is not found at once.
_HOST = "metadata.google.internal"
_TIMEOUT_S = 3.0
_PATH = "/computeMetadata/v1/instance/attributes"
_MOST_BYTES = 1 << 20
_SETTING = re.compile(r"^([A-Z_]+):\s*'?([^'\s]+)'?\s*$", re.MULTILINE)


def worker_hosts() -> list[str]:
    """The hosts of this machine's slice in the order of their numbers; none elsewhere.

    Raises ClusterError for endpoints of another form than host or name:id:host.
    """
    hosts = []
    for endpoint in filter(None, (_attribute("worker-network-endpoints") or "").split(",")):
        parts = endpoint.strip().split(":")
        if len(parts) not in (1, 3) or not parts[-1]:
            raise ClusterError(f"the metadata's worker-network-endpoints has {endpoint!r:.80}, which names no host")
        hosts.append(parts[-1])
    return hosts


def worker_number() -> int | None:
    """Which host of its slice this machine is; None elsewhere."""
    text = (_attribute("agent-worker-number") or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def slice_name() -> str | None:
    """The name of this machine's slice; None where none is told."""
    return settings().get("NODE_ID")


def settings() -> dict[str, str]:
    """What tells this machine of its slice, such as MEGASCALE_NUM_SLICES; none elsewhere."""
    return dict(_SETTING.findall(_attribute("tpu-env") or ""))


def _attribute(name: str) -> str | None:
    """An attribute of the machine; None where no metadata server answers or it has no such attribute."""
    if os.environ.get("TPU_SKIP_MDS_QUERY"):
        return None
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_IP") or _HOST
    try:
        return _fetch(http.client.HTTPConnection(host, timeout=_TIMEOUT_S), name)
    except (http.client.HTTPException, OSError, ValueError):
        return None


def _fetch(connection: http.client.HTTPConnection, name: str) -> str | None:
    """What one request gives: it knows neither proxies nor redirects, which would tell of another machine."""
    with closing(connection):
        connection.connect()
        deadline = time.monotonic() + _TIMEOUT_S
        # Headers as well as a body may trickle; the time limit of a socket is for each piece.
        cut = threading.Timer(_TIMEOUT_S, connection.sock.shutdown, (socket.SHUT_RDWR,))
        cut.daemon = True
        cut.start()
        try:
            connection.request("GET", f"{_PATH}/{name}", headers={"Metadata-Flavor": "Google"})
            reply = connection.getresponse()
            text = reply.read(_MOST_BYTES)
        finally:
            cut.cancel()
    # What was cut off would be taken for whole where no length was told.
    is_whole = reply.status == HTTPStatus.OK and time.monotonic() < deadline
    return text.decode("utf-8", "replace") if is_whole else None
