"""Several servers of one database: which of them does what only one should do, and how each of them fares."""

from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class Lease(Base):
    """A duty of one server at a time. `fence` grows with each new holder; there is a row from the beginning."""

    __tablename__ = "lease"

    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str] = mapped_column(default="")
    fence: Mapped[int] = mapped_column(default=0)
    expires_at: Mapped[int] = mapped_column(default=0)
    """On the clock of the database."""


class ServerProcess(Base):
    """A server that serves from this database. Times are on the clock of the database."""

    __tablename__ = "server_process"

    id: Mapped[str] = mapped_column(primary_key=True)
    process: Mapped[str]
    """The machine and the process id, empty before the colon where nobody can tell."""
    seen_at: Mapped[int]
    """When it last said that it is there."""
    stalled_us: Mapped[int]
    """For how long it stood still lately."""
