"""Leases: which of several servers does what only one of them should do."""

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
