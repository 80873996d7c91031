"""What agent and Celery child say to each other."""

from drumline.contracts.base import Contract, Secret
from drumline.contracts.ids import HostId, MemberId


class Ring(Contract):
    """A doorbell whose signature, host and time are right: there is a member to claim, or without one a probe."""

    member: MemberId | None = None
    fence: int = 0


class CeleryConfig(Contract):
    """Everything that the Celery child gets, over a pipe: neither its argv nor its environment holds a secret."""

    broker_url: Secret
    queue: str
    host: HostId
    kid: str
    key: Secret
    """Hex key of this host's doorbells."""
    socket: str
    """Path of the agent's doorbell socket."""
