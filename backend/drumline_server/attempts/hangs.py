"""Says which member of a gang that hangs has not arrived: silent or behind, by what each last told (rule P15)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from drumline.contracts.events import MemberTick
from drumline_server.attempts.queries import held_devices, members_of
from drumline_server.models import Attempt, Host, Member

SILENT_S = 3.0
"""A process that has told nothing for so long, six ticks, is stopped, or a call holds its interpreter.

Shorter than limits of progress use to be: at the end of one, a process that stopped where it last came further counts.
"""
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class _Seen:
    member: Member
    tick: MemberTick

    @property
    def place(self) -> tuple[int, int]:
        return self.tick.advances, self.tick.collectives

    @property
    def arrived(self) -> bool:
        """Whether it waits for others: it is in a step, and its process still tells so."""
        return self.tick.activity == "in_step" and not self.silent

    @property
    def silent(self) -> bool:
        return self.tick.silent_s >= SILENT_S


def describe_gang(session: Session, attempt: Attempt) -> str:
    """Which members are behind and what they do; empty for a gang of one, whose shim has said it."""
    members = members_of(session, attempt.id)
    seen = [_Seen(member, MemberTick.model_validate(member.tick)) for member in members if member.tick is not None]
    if len(members) == 1 or not seen:
        return ""
    late = _late(seen)
    if not late:
        return f"All {len(members)} members wait in the same place, after {seen[0].tick.advances} steps or logs."
    named = "; ".join(_describe(session, each) for each in late[:_MOST_NAMED])
    more = f"; and {len(late) - _MOST_NAMED} more" if len(late) > _MOST_NAMED else ""
    return f"Has not arrived: {named}{more}. {_others(seen, late)}"


def _late(seen: Sequence[_Seen]) -> list[_Seen]:
    """Those that do not answer; where all do or none does, those at the lowest place, or that do not wait for others.

    Who is ahead may be the cause: a process that stops after its step may still owe its peers a part of the collective.
    """
    lowest = min(each.place for each in seen)
    silent = [each for each in seen if each.silent]
    behind = [each for each in seen if each.place == lowest]
    absent = [each for each in seen if not each.arrived]
    return next((group for group in (silent, behind, absent) if 0 < len(group) < len(seen)), [])


def _describe(session: Session, each: _Seen) -> str:
    replicas = sorted({hold.replica for hold, _ in held_devices(session, each.member.id)})
    which = f"replica{'s' * (len(replicas) > 1)} {', '.join(map(str, replicas))}"
    host = session.get_one(Host, each.member.host_id).name
    return f"rank {each.member.rank} on {host} ({which}), after {each.tick.advances} steps or logs, {_doing(each)}"


def _doing(each: _Seen) -> str:
    if each.silent:
        return "whose process does not answer: it is stopped, or a call holds its interpreter"
    return {
        "rendezvous": "still on its way to the meeting",
        "own_code": "in the program's own code",
        "compiling": "compiling",
        "in_step": "in a step",
        "finishing": "finishing",
    }[each.tick.activity]


def _others(seen: Sequence[_Seen], late: Sequence[_Seen]) -> str:
    rest = [each for each in seen if each not in late]
    furthest = max((each.tick.advances for each in rest), default=0)
    return f"{len(rest)} other{'s wait' if len(rest) > 1 else ' waits'}, after {furthest}."
