"""Hosts, their devices and checkpoints, who holds them, and what the time of that went into."""

from typing import Any

from sqlalchemy import ColumnElement, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from drumline.contracts.states import CheckpointState, DeviceState
from drumline_server.storage.models.base import Base, one_of

PLATFORMS = ("cpu", "gpu", "tpu")


class Host(Base):
    """A machine with a worker. It has no inventory before its first registration."""

    __tablename__ = "host"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    name: Mapped[str]
    incarnation_id: Mapped[str | None]
    """The live incarnation; writes of any other are refused."""
    boot_id: Mapped[str] = mapped_column(default="")
    version: Mapped[str] = mapped_column(default="")
    protocol: Mapped[int | None]
    """What its worker speaks; None where it has not registered since servers keep it."""
    jax_version: Mapped[str] = mapped_column(default="")
    cpu_count: Mapped[int] = mapped_column(default=0)
    memory_bytes: Mapped[int] = mapped_column(default=0)
    checkpoint_store: Mapped[str] = mapped_column(default="")
    """The volume of its checkpoints where other hosts may mount it too; empty for a directory of its own."""
    slice_name: Mapped[str] = mapped_column(default="")
    """The TPU slice that it is of; empty where its worker names none."""
    slice_topology: Mapped[str] = mapped_column(default="")
    """The chips of that slice, such as `v4:2x2x4`."""
    warnings: Mapped[list[Any] | None]
    """What its worker told at its registration that should be mended: `{code, message, fix}` each."""
    takeover_s: Mapped[float | None]
    """The longest T that a worker of it was told and may still keep: its shims kill by the T of their start."""
    enrolled_at: Mapped[int]
    registered_at: Mapped[int | None]
    last_heartbeat_at: Mapped[int | None]
    draining: Mapped[bool] = mapped_column(default=False)
    suspect_since: Mapped[int | None]
    lost_at: Mapped[int | None]
    """When its lease ran out; cleared by the next registration."""
    drain_requested_at: Mapped[int | None]
    """When an operator asked for no more runs; outlives registrations."""
    drain_requested_by: Mapped[str | None]
    drain_requested_by_id: Mapped[str | None]
    quarantined_at: Mapped[int | None]
    """When failures of several runs took it out of service, until an operator releases it."""
    flagged_at: Mapped[int | None]
    """When they would have, had it not been the only one."""
    failures: Mapped[list[Any] | None]
    """The evidence: `{run, job, reason, at}` each."""
    released_at: Mapped[int | None]
    """Failures before do not count any more."""

    @classmethod
    def takes_runs(cls) -> tuple[ColumnElement[bool], ...]:
        """Conditions on hosts that may be given runs, but for how long ago they were heard of."""
        return (
            cls.draining.is_(False),
            cls.drain_requested_at.is_(None),
            cls.lost_at.is_(None),
            cls.quarantined_at.is_(None),
        )


class Incarnation(Base):
    """One life of a host's worker, from its registration to the next."""

    __tablename__ = "incarnation"
    __table_args__ = (
        Index("ix_incarnation_host_id_registered_at", "host_id", "registered_at"),
        Index(
            "ix_incarnation_last_heartbeat_at",
            "last_heartbeat_at",
            sqlite_where=text("last_heartbeat_at IS NOT NULL"),
            postgresql_where=text("last_heartbeat_at IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    boot_id: Mapped[str]
    place: Mapped[str] = mapped_column(default="")
    """The machine and data directory of its worker, as a digest; empty where the worker did not tell."""
    registered_at: Mapped[int]
    ended_at: Mapped[int | None]
    last_heartbeat_at: Mapped[int | None]
    """Set from the moment at which its host moves away from it until its lease is over: members that it began may be
    alive over there. While it is the newest, the host's own tells."""
    takeover_s: Mapped[float | None]
    """The T of that lease: the longest that was promised to it."""

    def lease_ends_at(self) -> int | None:
        """When its members over there are lost; None for one that left none behind."""
        if self.last_heartbeat_at is None:
            return None
        return self.last_heartbeat_at + int((self.takeover_s or 0.0) * 1_000_000)


class Device(Base):
    """One accelerator. `fence` and `attempt_id` are those of its holder; a quarantined device keeps its last one."""

    __tablename__ = "device"
    __table_args__ = (
        one_of("state", DeviceState),
        one_of("platform", PLATFORMS),
        UniqueConstraint("host_id", "platform", "position"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    platform: Mapped[str]
    position: Mapped[int]
    """JAX's local hardware index; `index` in the API."""
    kind: Mapped[str]
    memory_bytes: Mapped[int | None]
    coords: Mapped[list[Any] | None]
    core_on_chip: Mapped[int | None]
    simulated: Mapped[bool]
    present: Mapped[bool] = mapped_column(default=True)
    """Whether the newest registration of the host still listed it."""
    state: Mapped[str]
    attempt_id: Mapped[str | None]
    fence: Mapped[int] = mapped_column(default=0)
    quarantined_at: Mapped[int | None]
    quarantine_reason: Mapped[str | None]
    quarantine_member: Mapped[str | None]
    """The holder that is not proven dead."""
    probed_at: Mapped[int | None]
    probe_message: Mapped[str] = mapped_column(default="")


class Hold(Base):
    """That a member holds a device. The partial unique index makes holding a device twice impossible."""

    __tablename__ = "hold"
    __table_args__ = (
        Index(
            "uq_hold_live_device_id",
            "device_id",
            unique=True,
            sqlite_where=text("released_at IS NULL"),
            postgresql_where=text("released_at IS NULL"),
        ),
        Index("ix_hold_attempt_id", "attempt_id"),
    )

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    device_id: Mapped[str] = mapped_column(ForeignKey("device.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"))
    fence: Mapped[int]
    replica: Mapped[int]
    logical: Mapped[int]
    held_at: Mapped[int]
    released_at: Mapped[int | None]


class Stretch(Base):
    """A stretch of a member's time and what it went into."""

    __tablename__ = "stretch"
    __table_args__ = (Index("ix_stretch_attempt_id_step", "attempt_id", "step"),)

    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"), primary_key=True)
    begin_us: Mapped[int] = mapped_column(primary_key=True)
    """Since the member was claimed."""
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str]
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempt.id"))
    end_us: Mapped[int]
    step: Mapped[int | None]
    """Steps done at its end."""
    spent: Mapped[dict[str, Any]]
    """Microseconds by name."""
    usage: Mapped[dict[str, Any] | None]
    """As `drumline.contracts.usage.Usage`, of those that told it."""


class LedgerEntry(Base):
    """What an ended run spent on one host under one name."""

    __tablename__ = "ledger_entry"
    __table_args__ = (Index("ix_ledger_entry_project_id_ended_at", "project_id", "ended_at"),)

    run_id: Mapped[str] = mapped_column(primary_key=True)
    """Of a run that may be deleted: what was used stays counted."""
    host_id: Mapped[str] = mapped_column(primary_key=True)
    """Empty while it had none."""
    device_kind: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    owner: Mapped[str]
    ended_at: Mapped[int]
    wall_us: Mapped[int]
    """Shares of all hosts together are the run's time."""
    device_us: Mapped[int]


class Checkpoint(Base):
    """A committed checkpoint, registered under the fence of its attempt."""

    __tablename__ = "checkpoint"
    __table_args__ = (
        one_of("state", CheckpointState),
        UniqueConstraint("run_id", "fence", "step"),
        Index("ix_checkpoint_run_id_step", "run_id", "step"),
        Index("ix_checkpoint_member_id", "member_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    host_id: Mapped[str] = mapped_column(ForeignKey("host.id"))
    """The host that wrote it."""
    store: Mapped[str]
    """The volume that holds it: a host's own id, or the name of a volume that several hosts mount."""
    member_id: Mapped[str] = mapped_column(ForeignKey("member.id"))
    project_id: Mapped[str] = mapped_column(ForeignKey("project.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("run.id"))
    attempt_id: Mapped[str]
    fence: Mapped[int]
    step: Mapped[int]
    path: Mapped[str]
    size_bytes: Mapped[int]
    manifest: Mapped[str]
    created_at: Mapped[int]
