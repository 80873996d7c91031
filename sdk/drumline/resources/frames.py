"""Every point of metrics as files, and as tables of pyarrow and pandas, which the extra `data` brings."""

from typing import IO, TYPE_CHECKING

from drumline._transport import TIMEOUT_S, Params, Transport
from drumline.errors import MissingExtraError

if TYPE_CHECKING:
    from pyarrow import Table

_PIECE_BYTES = 256 * 1024


def save_points(transport: Transport, path: str, params: Params, target: IO[bytes]) -> None:
    """Writes the file at `path` as it comes."""
    with transport.stream(path, params, {}, TIMEOUT_S) as answer:
        for piece in answer.iter_bytes(_PIECE_BYTES):
            target.write(piece)


def read_points(transport: Transport, path: str, params: Params) -> "Table":
    """The stream of Arrow at `path` as a table. Raises MissingExtraError where pyarrow is not installed."""
    try:
        from pyarrow import BufferReader, ipc
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This needs {error.name}, which is not installed; pip install 'drumline[data]'."
        ) from error
    return ipc.open_stream(BufferReader(transport.send("GET", path, params=params).content)).read_all()
