"""What a registration tells about an incarnation before it: whether anything that it began can still be alive (P7)."""

from enum import StrEnum

from drumline.contracts.worker_api import Register
from drumline_server.models import Incarnation


class Change(StrEnum):
    """What lies between an incarnation and a registration after it."""

    RESTART = "restart"
    """The worker began again: what it does not find is dead, as it has looked."""
    REBOOT = "reboot"
    """The machine began again: everything of before is dead."""
    MOVE = "move"
    """Another machine, or another data directory, has the host's identity now: nothing is known of the one before."""


def change_since(older: Incarnation | None, body: Register) -> Change:
    """A worker that does not say where it is, or succeeds one that did not, may be anywhere."""
    if older is None:
        return Change.RESTART
    if not body.place or older.place != body.place:
        return Change.MOVE
    return Change.RESTART if older.boot_id == body.boot_id else Change.REBOOT
