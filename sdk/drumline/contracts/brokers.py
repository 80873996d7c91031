"""What notifies hosts, and which Redis and Valkey servers may carry it, by the name and version that they give.

Older ones let whoever may write a queue run code of their own in the broker (CVE-2025-49844).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

Line = tuple[int, int]

NOTIFY_TASK = "drumline.notify"
"""The one Celery task. It takes nothing: the host asks the server what is new."""

_MOST_CHARACTERS = 65_536
"""An answer to INFO has some 6000."""
_FIXED: dict[str, dict[Line, int]] = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""Of each line the first release without the hole; 7.0 of Redis never got one."""
_WITHOUT_FIX = {"Redis": frozenset({(7, 0)}), "Valkey": frozenset[Line]()}
_ALL_FIXED: dict[str, Line] = {"Redis": (8, 4), "Valkey": (9, 0)}
"""From this line on there is no release with the hole."""
_UNSTABLE = 100
"""A build from the development branch calls itself 255.255.255."""
_OWN_FIELDS = frozenset({"redis_version", "valkey_version", "gcc_version"})
_GOOD = (
    "install Valkey 9, or 8.1.4, 8.0.6, 7.2.11 or a later one of their lines; or Redis 8.4, or 8.2.2, 8.0.4, 7.4.6, "
    "7.2.11, 6.2.20 or a later one of their lines"
)


class Verdict(StrEnum):
    """What to do with a broker."""

    GOOD = "good"
    UNKNOWN = "unknown"
    """Use it, and warn."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; `reason` says why and what to install, and is empty for a good one."""

    verdict: Verdict
    reason: str = ""


def judge_info(text: str) -> Judgement:
    """Judges a server by its answer to INFO."""
    fields = dict(re.findall(r"^(\w{1,64}):(.{0,256}?)\r?$", text[:_MOST_CHARACTERS], re.MULTILINE))
    other = _other_name(fields)
    if other:
        return _unknown(other)
    if "valkey_version" in fields:  # it calls itself redis_version 7.2.4 as well, for old clients
        return judge_version("Valkey", fields["valkey_version"], fields.get("valkey_release_stage", ""))
    if "redis_version" in fields:
        return judge_version("Redis", fields["redis_version"])
    return _unknown("a server that does not say what it is")


def judge_version(name: str, version: str, stage: str = "ga") -> Judgement:
    """Judges "Redis" or "Valkey" by a version such as 8.1.4; `stage` is other than "ga" for a release candidate."""
    numbers = re.fullmatch(r"([0-9]{1,5})[.]([0-9]{1,5})[.]([0-9]{1,5})", version)
    called = f"{name} {version}" if stage in ("", "ga") else f"{name} {version}-{stage}"
    if numbers is None:
        return _unknown(called)
    major, minor, patch = map(int, numbers.groups())
    line, fixed = (major, minor), _FIXED[name]
    if major >= _UNSTABLE:
        return _unknown(called)
    if line < min(fixed) or line in _WITHOUT_FIX[name] or patch < fixed.get(line, 0):
        return Judgement(Verdict.REFUSED, f"{called} is too old to be safe (CVE-2025-49844): {_GOOD}")
    if stage not in ("", "ga"):
        return _unknown(called)
    if line in fixed or line >= _ALL_FIXED[name]:
        return Judgement(Verdict.GOOD)
    return _unknown(called)


def judge_banner(text: str) -> Judgement:
    """Judges a program by what `--version` prints, such as "Valkey server v=9.1.2 sha=..."."""
    found = re.match(r"(Redis|Valkey) server v=(\S{1,64})", text)
    return judge_version(found[1], found[2]) if found else _unknown("a server that does not say what it is")


def _other_name(fields: dict[str, str]) -> str:
    """What else speaks the protocol: it gives Redis's version for the commands it knows, and its own beside it."""
    # Valkey may lie where KeyDB lay before, and be called as that was.
    of_keydb = "keydb" in fields.get("executable", "").lower() and "valkey_version" not in fields
    if of_keydb or "mvcc_depth" in fields:
        return f"KeyDB {fields.get('redis_version', '')}".strip()
    for field, value in fields.items():
        if field.endswith("_version") and field not in _OWN_FIELDS:
            return f"{field.removesuffix('_version').capitalize()} {value}"
    name = fields.get("server_name", "valkey")
    return "" if name == "valkey" else name[:64]


def _unknown(called: str) -> Judgement:
    return Judgement(Verdict.UNKNOWN, f"{called} is not known to be safe (CVE-2025-49844); better {_GOOD}")
