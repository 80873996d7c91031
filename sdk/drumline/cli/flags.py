"""Which flag sets which field of a submission: refusals name what was typed."""

_FLAGS = {
    "name": "--name",
    "entrypoint": "--entrypoint",
    "strategy": "--strategy",
    "replicas": "--replicas",
    "platform": "--platform",
    "spread": "--spread",
    "run_s": "--time-limit",
    "queue_s": "--queue-limit",
    "step_s": "--step-limit",
    "first_step_s": "--first-step-limit",
    "rendezvous_s": "--rendezvous-limit",
    "grace_s": "--grace",
    "retries.user": "--retries",
    "retries.infrastructure": "--infrastructure-retries",
    "priority": "--priority",
    "labels": "--label",
    "parameters": "--parameter",
    "every_steps": "--checkpoint-every",
    "keep": "--keep",
    "keep_every_steps": "--keep-every",
    "record": "--record",
    "resume_from": "--resume-from",
    "steps": "--steps",
    "limit_s": "--probe-limit",
}
_WITHIN = ("body.", "run.", "job.", "program.", "resources.", "limits.", "checkpoint.", "probe.")
"""Parts of a submission whose fields have flags of their own."""


def flag_of(field: str) -> str | None:
    """`--time-limit` for `run_s` and for `limits.run_s`; `--label team` for `labels.team`; None where none sets it."""
    for part in _WITHIN:
        field = field.removeprefix(part)
    if field in _FLAGS:
        return _FLAGS[field]
    first, _, rest = field.partition(".")
    return f"{_FLAGS[first]} {rest.removesuffix('.[key]')}" if first in ("labels", "parameters", "record") else None


def with_flag(message: str, field: str) -> str:
    """`--replicas 0: ...` for `replicas=0: ...`."""
    flag = flag_of(field)
    start = f"{field}="
    if flag is None or not message.startswith(start):
        return message
    is_pair = " " in flag
    return f"{flag}{'=' if is_pair else ' '}{message.removeprefix(start)}"
