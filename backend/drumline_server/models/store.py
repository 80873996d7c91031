"""Which directories hold the files that rows of the database speak of."""

from sqlalchemy.orm import Mapped, mapped_column

from drumline_server.models.base import Base


class Store(Base):
    """A directory of files beside the database. It holds the same identity, so that another one is told from it."""

    __tablename__ = "store"

    name: Mapped[str] = mapped_column(primary_key=True)
    identity: Mapped[str]
    made_at: Mapped[int]
