"""What a cloud's TPU machine tells about itself through its metadata server. Elsewhere nothing answers."""

from __future__ import annotations

import http.client
import os
import re
import time
import urllib.error
import urllib.request

from drumline.distribute.errors import ClusterError

#: A name that is known to its own network only: elsewhere it is not found at once.
_HOST = "metadata.google.internal"
_TIMEOUT_S = 3.0
_MOST_BYTES = 1 << 20
_NODE_ID = re.compile(r"^NODE_ID:\s*'?([^'\s]+)'?\s*$", re.MULTILINE)


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
    match = _NODE_ID.search(_attribute("tpu-env") or "")
    return match[1] if match else None


def _attribute(name: str) -> str | None:
    """An attribute of the machine; None where no metadata server answers or it has no such attribute."""
    if os.environ.get("TPU_SKIP_MDS_QUERY"):
        return None
    host = os.environ.get("GCE_METADATA_HOST") or os.environ.get("GCE_METADATA_IP") or _HOST
    request = urllib.request.Request(
        f"http://{host}/computeMetadata/v1/instance/attributes/{name}", headers={"Metadata-Flavor": "Google"}
    )
    # A proxy would answer for another machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as reply:
            text, deadline = b"", time.monotonic() + _TIMEOUT_S
            while len(text) < _MOST_BYTES and (piece := reply.read1(_MOST_BYTES - len(text))):
                text += piece
                if time.monotonic() > deadline:  # it trickles
                    return None
            return str(text.decode("utf-8", "replace"))
    except (http.client.HTTPException, urllib.error.URLError, OSError, ValueError):
        return None
