"""Who made a token; a session ends with the token that opened it.

Revision ID: 0013
Revises: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_END_OF_TOKEN = "(SELECT expires_at FROM token WHERE token.id = session.token_id)"


def upgrade() -> None:
    op.add_column("token", sa.Column("made_by", sa.String(), nullable=True))
    op.create_index("ix_token_made_by", "token", ["made_by"])
    op.create_index("ix_session_token_id", "session", ["token_id"])
    op.create_index("ix_login_code_token_id", "login_code", ["token_id"])
    op.execute(f"UPDATE session SET expires_at = {_END_OF_TOKEN} WHERE expires_at > {_END_OF_TOKEN}")


def downgrade() -> None:
    op.drop_index("ix_login_code_token_id", "login_code")
    op.drop_index("ix_session_token_id", "session")
    op.drop_index("ix_token_made_by", "token")
    op.execute("ALTER TABLE token DROP COLUMN made_by")
