"""How a program comes to the server: in one request, or, where it is large, continued after a connection that broke.

Where the server keeps programs in an object store, the pieces of a large one go there, to addresses that the server
signs. No credential goes with them.
"""

from urllib.parse import quote

from drumline._transport import MAX_BACKOFF_S, MAX_TRIES, Body, Transport, backoff
from drumline.contracts import api
from drumline.errors import (
    ConflictError,
    NotFoundError,
    RateLimitedError,
    ServerError,
    ServerTooOldError,
    ServerUnreachableError,
)

PIECEWISE_BYTES = 2**20
"""A larger bundle is sent only if the server does not have it, and from where an upload of it ended."""
_PASSING = (ConflictError, RateLimitedError, ServerError, ServerUnreachableError)


def upload_program(transport: Transport, packed: bytes, sha256: str) -> None:
    """Brings a packed program to the server. Raises the APIError of a refusal, ServerUnreachableError."""
    path = f"/bundles/{quote(sha256, safe=':')}"
    if len(packed) <= PIECEWISE_BYTES:
        _send_whole(transport, packed)
        return
    try:
        known = transport.get(f"{path}/upload", api.BundleUpload)
    except (NotFoundError, ServerTooOldError):  # one of the release before, which takes bundles only whole
        if not _is_there(transport, path):
            _send_whole(transport, packed)
        return
    _send_rest(transport, f"{path}/upload", packed, known)


def _send_rest(transport: Transport, path: str, packed: bytes, known: api.BundleUpload) -> None:
    """Goes back to the server's count after each failure; gives up after some in a row that brought it no further."""
    tries = 0
    while known.bundle is None:
        begin = known.received_bytes
        try:
            if known.by_address and begin < len(packed):
                known = known.model_copy(update={"received_bytes": _send_piece(transport, path, packed, begin)})
            else:
                known = _send_to_server(transport, path, packed, begin)
        except _PASSING as error:
            tries += 1
            if tries == MAX_TRIES:
                raise
            transport.sleep(MAX_BACKOFF_S if isinstance(error, RateLimitedError) else backoff(tries))
            known = transport.get(path, api.BundleUpload)
        if known.received_bytes > begin:
            tries = 0


def _send_to_server(transport: Transport, path: str, packed: bytes, begin: int) -> api.BundleUpload:
    body = Body(packed[begin:], "application/octet-stream")
    where = {"offset": begin, "size": len(packed)}
    return api.BundleUpload.model_validate_json(transport.send("PATCH", path, body, params=where).content)


def _send_piece(transport: Transport, path: str, packed: bytes, begin: int) -> int:
    """Up to where the object store has it then. Raises as Transport.put_elsewhere."""
    where = {"offset": begin, "size": len(packed)}
    address = transport.post(f"{path}/address", api.PieceAddress, params=where)
    end = begin + address.size_bytes
    transport.put_elsewhere(address.url, packed[begin:end], address.headers)
    return end


def _is_there(transport: Transport, path: str) -> bool:
    try:
        transport.send("GET", path)
    except NotFoundError:
        return False
    return True


def _send_whole(transport: Transport, packed: bytes) -> None:
    transport.send("POST", "/bundles", Body(packed, "application/zip"), repeatable=True)
