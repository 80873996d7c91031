"""What each process of a run that hung was doing: the stacks in its output."""

from collections.abc import Iterator

from drumline._transport import Transport
from drumline.contracts import api
from drumline.contracts.events import STACKS_ENDING, STACKS_HEADING
from drumline.resources.run_logs import LogSource, read_logs

_TAIL_BYTES = 512 * 1024
"""Stacks come at the very end; a worker writes at most half of this."""


def read_stacks(transport: Transport, path: str, attempt: api.Attempt) -> Iterator[tuple[api.Member, str]]:
    """Each member of the attempt that dumped its stacks, by rank, with the text."""
    for member in attempt.members:
        text = "".join(
            segment.text
            for chunk in read_logs(transport, LogSource(path, attempt.id, member.id), -_TAIL_BYTES)
            for segment in chunk.segments
            if segment.stream == "system"
        )
        _, found, after = text.rpartition(STACKS_HEADING)
        if found:
            yield member, f"{found}{after.partition(STACKS_ENDING)[0]}".rstrip()
