"""First tables.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "project",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_project")),
        sa.UniqueConstraint("name", name=op.f("uq_project_name")),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_audit_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.create_index("ix_audit_project_id_at", ["project_id", "at"], unique=False)

    op.create_table(
        "bundle",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("entrypoints", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_bundle_project_id_project")),
        sa.PrimaryKeyConstraint("project_id", "sha256", name=op.f("pk_bundle")),
    )
    op.create_table(
        "host",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("incarnation_id", sa.String(), nullable=True),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("jax_version", sa.String(), nullable=False),
        sa.Column("cpu_count", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=True),
        sa.Column("last_heartbeat_at", sa.BigInteger(), nullable=True),
        sa.Column("draining", sa.Boolean(), nullable=False),
        sa.Column("suspect_since", sa.BigInteger(), nullable=True),
        sa.Column("lost_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_host_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_host_project_id_name")),
    )
    op.create_table(
        "idempotency_key",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("route", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("body_hash", sa.String(), nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_idempotency_key_project_id_project")),
        sa.PrimaryKeyConstraint("project_id", "route", "key", name=op.f("pk_idempotency_key")),
    )
    with op.batch_alter_table("idempotency_key", schema=None) as batch_op:
        batch_op.create_index("ix_idempotency_key_created_at", ["created_at"], unique=False)

    op.create_table(
        "job",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("latest_version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_job_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("project_id", "name", name=op.f("uq_job_project_id_name")),
    )
    op.create_table(
        "device",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("coords", sa.Text(), nullable=True),
        sa.Column("core_on_chip", sa.BigInteger(), nullable=True),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("quarantine_note", sa.String(), nullable=False),
        sa.CheckConstraint("platform IN ('cpu', 'gpu', 'tpu')", name=op.f("ck_device_platform")),
        sa.CheckConstraint("state IN ('FREE', 'HELD', 'RELEASING', 'QUARANTINED')", name=op.f("ck_device_state")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_device_host_id_host")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_device_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device")),
        sa.UniqueConstraint("host_id", "platform", "position", name=op.f("uq_device_host_id_platform_position")),
    )
    op.create_table(
        "incarnation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_incarnation_host_id_host")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_incarnation_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incarnation")),
    )
    with op.batch_alter_table("incarnation", schema=None) as batch_op:
        batch_op.create_index("ix_incarnation_host_id_registered_at", ["host_id", "registered_at"], unique=False)

    op.create_table(
        "job_version",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.Column("bundle", sa.String(), nullable=False),
        sa.Column("entrypoint", sa.String(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_job_version_job_id_job")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_job_version_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_version")),
        sa.UniqueConstraint("job_id", "content_hash", name=op.f("uq_job_version_job_id_content_hash")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_job_version_job_id_number")),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.String(), nullable=False),
        sa.Column("last4", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('pat', 'enr', 'wrk')", name=op.f("ck_token_kind")),
        sa.CheckConstraint(
            "role IN ('viewer', 'submitter', 'operator', 'admin', 'worker')", name=op.f("ck_token_role")
        ),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_token_host_id_host")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_token_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_token_secret_hash")),
    )
    with op.batch_alter_table("token", schema=None) as batch_op:
        batch_op.create_index("ix_token_project_id_created_at", ["project_id", "created_at"], unique=False)

    op.create_table(
        "login_code",
        sa.Column("code_hash", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("used_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("role IN ('viewer', 'submitter', 'operator', 'admin')", name=op.f("ck_login_code_role")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_login_code_project_id_project")),
        sa.ForeignKeyConstraint(["token_id"], ["token.id"], name=op.f("fk_login_code_token_id_token")),
        sa.PrimaryKeyConstraint("code_hash", name=op.f("pk_login_code")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("job_name", sa.String(), nullable=False),
        sa.Column("version_id", sa.String(), nullable=False),
        sa.Column("version_number", sa.BigInteger(), nullable=False),
        sa.Column("submitted_by", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("event_seq", sa.BigInteger(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=True),
        sa.Column("reason_message", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("user_failures", sa.BigInteger(), nullable=False),
        sa.Column("infrastructure_failures", sa.BigInteger(), nullable=False),
        sa.Column("hosts", sa.Text(), nullable=False),
        sa.Column("strategy_kind", sa.String(), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("platform", sa.String(), nullable=False),
        sa.Column("spread", sa.String(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("parameters", sa.Text(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("retries", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("wait_for_devices", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("queue_deadline", sa.BigInteger(), nullable=True),
        sa.Column("retry_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_requested_at", sa.BigInteger(), nullable=True),
        sa.Column("cancel_grace_s", sa.Double(), nullable=True),
        sa.Column("stop_reason", sa.String(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("total_steps", sa.BigInteger(), nullable=True),
        sa.Column("steps_per_s", sa.Double(), nullable=True),
        sa.Column("examples_per_s", sa.Double(), nullable=True),
        sa.Column("progress_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('QUEUED', 'PLACED', 'RUNNING', 'RETRY_WAIT', 'CANCELLING', 'SUCCEEDED', 'FAILED', 'CANCELLED')",
            name=op.f("ck_run_state"),
        ),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_run_job_id_job")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_run_project_id_project")),
        sa.ForeignKeyConstraint(["version_id"], ["job_version.id"], name=op.f("fk_run_version_id_job_version")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("ix_run_job_id_created_at", ["job_id", "created_at"], unique=False)
        batch_op.create_index("ix_run_project_id_created_at_id", ["project_id", "created_at", "id"], unique=False)
        batch_op.create_index(
            "ix_run_project_id_state_created_at_id", ["project_id", "state", "created_at", "id"], unique=False
        )
        batch_op.create_index(
            "ix_run_queue",
            ["state", "project_id", sa.literal_column("priority DESC"), "created_at", "id"],
            unique=False,
        )
        batch_op.create_index("ix_run_version_id", ["version_id"], unique=False)

    op.create_table(
        "session",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("cookie_hash", sa.String(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_used_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("role IN ('viewer', 'submitter', 'operator', 'admin')", name=op.f("ck_session_role")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_session_project_id_project")),
        sa.ForeignKeyConstraint(["token_id"], ["token.id"], name=op.f("fk_session_token_id_token")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_session")),
        sa.UniqueConstraint("cookie_hash", name=op.f("uq_session_cookie_hash")),
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=True),
        sa.Column("reason_message", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("claim_deadline", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finishing_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('DISPATCHED', 'CLAIMED', 'STARTING', 'RUNNING', 'FINISHING', 'SUCCEEDED', 'FAILED', 'CANCELLED', 'PREEMPTED', 'LOST', 'EXPIRED')",
            name=op.f("ck_attempt_state"),
        ),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_attempt_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("run_id", "fence", name=op.f("uq_attempt_run_id_fence")),
    )
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.create_index("ix_attempt_state", ["state"], unique=False)
        batch_op.create_index(
            "uq_attempt_live_run_id",
            ["run_id"],
            unique=True,
            sqlite_where=sa.text("state NOT IN ('CANCELLED', 'EXPIRED', 'FAILED', 'LOST', 'PREEMPTED', 'SUCCEEDED')"),
            postgresql_where=sa.text(
                "state NOT IN ('CANCELLED', 'EXPIRED', 'FAILED', 'LOST', 'PREEMPTED', 'SUCCEEDED')"
            ),
        )

    op.create_table(
        "run_event",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_run_event_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_event_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_run_event")),
    )
    op.create_table(
        "run_label",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_run_label_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_label_run_id_run")),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_run_label")),
    )
    with op.batch_alter_table("run_label", schema=None) as batch_op:
        batch_op.create_index(
            "ix_run_label_project_id_key_value", ["project_id", "key", "value", "run_id"], unique=False
        )

    op.create_table(
        "member",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("incarnation_id", sa.String(), nullable=True),
        sa.Column("rank", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.BigInteger(), nullable=True),
        sa.Column("signal", sa.BigInteger(), nullable=True),
        sa.Column("reason_code", sa.String(), nullable=True),
        sa.Column("reason_message", sa.String(), nullable=False),
        sa.Column("acked_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("last_collective", sa.String(), nullable=True),
        sa.Column("log_bytes", sa.BigInteger(), nullable=False),
        sa.Column("log_lines", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('PENDING', 'CLAIMED', 'STARTING', 'RUNNING', 'EXITED', 'LOST', 'FENCED')",
            name=op.f("ck_member_state"),
        ),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_member_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_member_host_id_host")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_member_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_member_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_member")),
        sa.UniqueConstraint("attempt_id", "rank", name=op.f("uq_member_attempt_id_rank")),
    )
    with op.batch_alter_table("member", schema=None) as batch_op:
        batch_op.create_index("ix_member_host_id_state", ["host_id", "state"], unique=False)

    op.create_table(
        "checkpoint",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("manifest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_checkpoint_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_checkpoint_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_checkpoint_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_checkpoint_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "seq", name=op.f("pk_checkpoint")),
    )
    with op.batch_alter_table("checkpoint", schema=None) as batch_op:
        batch_op.create_index("ix_checkpoint_run_id_step", ["run_id", "step"], unique=False)

    op.create_table(
        "hold",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("replica", sa.BigInteger(), nullable=False),
        sa.Column("logical", sa.BigInteger(), nullable=False),
        sa.Column("held_at", sa.BigInteger(), nullable=False),
        sa.Column("released_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_hold_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["device_id"], ["device.id"], name=op.f("fk_hold_device_id_device")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_hold_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_hold_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_hold_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "device_id", name=op.f("pk_hold")),
    )
    with op.batch_alter_table("hold", schema=None) as batch_op:
        batch_op.create_index("ix_hold_attempt_id", ["attempt_id"], unique=False)
        batch_op.create_index(
            "uq_hold_live_device_id",
            ["device_id"],
            unique=True,
            sqlite_where=sa.text("released_at IS NULL"),
            postgresql_where=sa.text("released_at IS NULL"),
        )

    op.create_table(
        "log_chunk",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("first_byte", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("next_byte", sa.BigInteger(), nullable=False),
        sa.Column("first_line", sa.BigInteger(), nullable=False),
        sa.Column("newlines", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_log_chunk_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_log_chunk_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_log_chunk_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_log_chunk_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "first_byte", name=op.f("pk_log_chunk")),
    )
    with op.batch_alter_table("log_chunk", schema=None) as batch_op:
        batch_op.create_index("ix_log_chunk_run_id", ["run_id"], unique=False)

    op.create_table(
        "metric",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("times", sa.LargeBinary(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_metric_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_metric_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_metric_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_metric_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "name", name=op.f("pk_metric")),
    )
    with op.batch_alter_table("metric", schema=None) as batch_op:
        batch_op.create_index("ix_metric_run_id_name", ["run_id", "name"], unique=False)

    op.create_table(
        "metric_chunk",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("times", sa.LargeBinary(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_metric_chunk_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_metric_chunk_project_id_project")),
        sa.PrimaryKeyConstraint("member_id", "name", "number", name=op.f("pk_metric_chunk")),
    )

    op.create_table(
        "metric_page",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("first_steps", sa.LargeBinary(), nullable=False),
        sa.Column("last_steps", sa.LargeBinary(), nullable=False),
        sa.Column("step_lasts", sa.LargeBinary(), nullable=False),
        sa.Column("first_times", sa.LargeBinary(), nullable=False),
        sa.Column("last_times", sa.LargeBinary(), nullable=False),
        sa.Column("time_lasts", sa.LargeBinary(), nullable=False),
        sa.Column("finite", sa.LargeBinary(), nullable=False),
        sa.Column("lows", sa.LargeBinary(), nullable=False),
        sa.Column("highs", sa.LargeBinary(), nullable=False),
        sa.Column("totals", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_metric_page_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_metric_page_project_id_project")),
        sa.PrimaryKeyConstraint("member_id", "name", "number", name=op.f("pk_metric_page")),
    )

    op.create_table(
        "outbox",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("host_id", sa.String(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("rung_at", sa.BigInteger(), nullable=True),
        sa.Column("rings", sa.BigInteger(), nullable=False),
        sa.Column("settled_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("kind IN ('claim', 'cancel')", name=op.f("ck_outbox_kind")),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_outbox_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_outbox_host_id_host")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_outbox_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_outbox_project_id_project")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.create_index("ix_outbox_member_id", ["member_id"], unique=False)
        batch_op.create_index(
            "ix_outbox_open",
            ["rung_at"],
            unique=False,
            sqlite_where=sa.text("settled_at IS NULL"),
            postgresql_where=sa.text("settled_at IS NULL"),
        )

    op.create_table(
        "placement_record",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("strategy", sa.String(), nullable=False),
        sa.Column("executor", sa.String(), nullable=False),
        sa.Column("replicas", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_placement_record_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_placement_record_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_placement_record_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_placement_record_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", name=op.f("pk_placement_record")),
    )
    with op.batch_alter_table("placement_record", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_placement_record_attempt_id"), ["attempt_id"], unique=False)

    op.create_table(
        "reduction",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("axis", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("replicas", sa.BigInteger(), nullable=False),
        sa.Column("ragged", sa.Boolean(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_reduction_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_reduction_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_reduction_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_reduction_run_id_run")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reduction")),
        sa.UniqueConstraint("member_id", "seq", name=op.f("uq_reduction_member_id_seq")),
    )
    with op.batch_alter_table("reduction", schema=None) as batch_op:
        batch_op.create_index(
            "ix_reduction_member_id_kind_level_step", ["member_id", "kind", "level", "step"], unique=False
        )
        batch_op.create_index("ix_reduction_run_id_name_step", ["run_id", "name", "step", "id"], unique=False)
        batch_op.create_index("ix_reduction_run_id_step_id", ["run_id", "step", "id"], unique=False)

    op.create_table(
        "reduction_kind",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("kind", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("axis", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("ragged", sa.Boolean(), nullable=False),
        sa.Column("recorded", sa.BigInteger(), nullable=False),
        sa.Column("first_step", sa.BigInteger(), nullable=False),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_reduction_kind_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_reduction_kind_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_reduction_kind_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_reduction_kind_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "kind", name=op.f("pk_reduction_kind")),
    )
    with op.batch_alter_table("reduction_kind", schema=None) as batch_op:
        batch_op.create_index("ix_reduction_kind_run_id", ["run_id"], unique=False)

    op.create_table(
        "variable_record",
        sa.Column("member_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("dtype", sa.String(), nullable=False),
        sa.Column("synchronization", sa.String(), nullable=False),
        sa.Column("aggregation", sa.String(), nullable=False),
        sa.Column("homes", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_variable_record_attempt_id_attempt")),
        sa.ForeignKeyConstraint(["member_id"], ["member.id"], name=op.f("fk_variable_record_member_id_member")),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name=op.f("fk_variable_record_project_id_project")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_variable_record_run_id_run")),
        sa.PrimaryKeyConstraint("member_id", "name", name=op.f("pk_variable_record")),
    )
    with op.batch_alter_table("variable_record", schema=None) as batch_op:
        batch_op.create_index("ix_variable_record_attempt_id", ["attempt_id"], unique=False)


def downgrade() -> None:

    with op.batch_alter_table("variable_record", schema=None) as batch_op:
        batch_op.drop_index("ix_variable_record_attempt_id")

    op.drop_table("variable_record")
    with op.batch_alter_table("reduction_kind", schema=None) as batch_op:
        batch_op.drop_index("ix_reduction_kind_run_id")

    op.drop_table("reduction_kind")
    with op.batch_alter_table("reduction", schema=None) as batch_op:
        batch_op.drop_index("ix_reduction_run_id_step_id")
        batch_op.drop_index("ix_reduction_run_id_name_step")
        batch_op.drop_index("ix_reduction_member_id_kind_level_step")

    op.drop_table("reduction")
    with op.batch_alter_table("placement_record", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_placement_record_attempt_id"))

    op.drop_table("placement_record")
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index(
            "ix_outbox_open", sqlite_where=sa.text("settled_at IS NULL"), postgresql_where=sa.text("settled_at IS NULL")
        )
        batch_op.drop_index("ix_outbox_member_id")

    op.drop_table("outbox")
    op.drop_table("metric_page")
    op.drop_table("metric_chunk")
    with op.batch_alter_table("metric", schema=None) as batch_op:
        batch_op.drop_index("ix_metric_run_id_name")

    op.drop_table("metric")
    with op.batch_alter_table("log_chunk", schema=None) as batch_op:
        batch_op.drop_index("ix_log_chunk_run_id")

    op.drop_table("log_chunk")
    with op.batch_alter_table("hold", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_hold_live_device_id",
            sqlite_where=sa.text("released_at IS NULL"),
            postgresql_where=sa.text("released_at IS NULL"),
        )
        batch_op.drop_index("ix_hold_attempt_id")

    op.drop_table("hold")
    with op.batch_alter_table("checkpoint", schema=None) as batch_op:
        batch_op.drop_index("ix_checkpoint_run_id_step")

    op.drop_table("checkpoint")
    with op.batch_alter_table("member", schema=None) as batch_op:
        batch_op.drop_index("ix_member_host_id_state")

    op.drop_table("member")
    with op.batch_alter_table("run_label", schema=None) as batch_op:
        batch_op.drop_index("ix_run_label_project_id_key_value")

    op.drop_table("run_label")
    op.drop_table("run_event")
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_attempt_live_run_id",
            sqlite_where=sa.text("state NOT IN ('CANCELLED', 'EXPIRED', 'FAILED', 'LOST', 'PREEMPTED', 'SUCCEEDED')"),
            postgresql_where=sa.text(
                "state NOT IN ('CANCELLED', 'EXPIRED', 'FAILED', 'LOST', 'PREEMPTED', 'SUCCEEDED')"
            ),
        )
        batch_op.drop_index("ix_attempt_state")

    op.drop_table("attempt")
    op.drop_table("session")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("ix_run_version_id")
        batch_op.drop_index("ix_run_queue")
        batch_op.drop_index("ix_run_project_id_state_created_at_id")
        batch_op.drop_index("ix_run_project_id_created_at_id")
        batch_op.drop_index("ix_run_job_id_created_at")

    op.drop_table("run")
    op.drop_table("login_code")
    with op.batch_alter_table("token", schema=None) as batch_op:
        batch_op.drop_index("ix_token_project_id_created_at")

    op.drop_table("token")
    op.drop_table("job_version")
    with op.batch_alter_table("incarnation", schema=None) as batch_op:
        batch_op.drop_index("ix_incarnation_host_id_registered_at")

    op.drop_table("incarnation")
    op.drop_table("device")
    op.drop_table("job")
    with op.batch_alter_table("idempotency_key", schema=None) as batch_op:
        batch_op.drop_index("ix_idempotency_key_created_at")

    op.drop_table("idempotency_key")
    op.drop_table("host")
    op.drop_table("bundle")
    with op.batch_alter_table("audit", schema=None) as batch_op:
        batch_op.drop_index("ix_audit_project_id_at")

    op.drop_table("audit")
    op.drop_table("project")
