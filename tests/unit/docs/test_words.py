"""One language: each word of docs/glossary.md is used by the code, and words that were given up are used nowhere."""

import re
from functools import cache

import pytest

from support.code_names import PAGES, ROOT, read_code

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
_TABLE = GLOSSARY.split("\n## ")[0]
_WORDS = re.findall(r"\*\*([^*]+)\*\*", _TABLE)
_SOURCES = {"sdk": "*.py", "backend": "*.py", "worker": "*.py", "frontend/src": "*.ts*"}
_GENERATED = {"schema.ts"}
_GIVEN_UP = {
    "doorbell": "notification",
    "bell": "notification",
    "rung_at": "notified_at",
    "order_ring": "notify",
    "outbox": "notification",
    "shelf": "checkpoint manager",
    "shelves": "checkpoint managers",
    "workbench": "AgentContext",
    "take_news": "apply_reply",
    "keep_house": "run_maintenance",
    "see_through": "supervise",
    "make_way": "step_down",
    "farewell": "send_final",
    "sifting": "purge",
    "lifting": "variable references",
    "taps": "instrumented collectives",
    "rubble": "remove_partial",
    "clock_steps": "clock_skew",
    "plays no part": "what happens instead",
    "reaper": "deadline loop",
    "lifeline": "parent pipes",
    "foreseen": "simulation",
    "outlook": "scheduling result",
    "anew": "again, from the start",
    "goes on": "continues, resumes",
    "gives out": "returns",
    "nobody's failure": "not counted",
    "shared-line": "shared connection",
    "memberbeat": "MemberHeartbeat",
    "judge_host": "quarantine_faulty_host",
    "hang_gang": "mark_gang_hung",
    "settle_attempt": "reconcile_attempt",
    "told_to_stop": "on_stop_signal",
    "beat_soon": "request_heartbeat",
    "held_off": "restricted_platforms",
    "seat": "DeviceAssignment",
    "keeper": "Supervisor",
    "on_dying": "on_crash_loop",
    "hostnotice": "HostWarning",
    "memberplan": "StartOrder",
    "plan.json": "order.json",
    "wakeups": "CommitNews",
    "place_of": "location_of",
    "device probe": "device check",
    "proberequest": "DeviceCheck",
    "desk": "resolver",
}
"""Words that only their authors understood, with what is said instead."""
_OF_OLD_WORKERS = re.compile(r"doorbell_k(?:id|ey)")
"""Fields that the protocol of older workers demands."""


@cache
def sources() -> dict[str, str]:
    files = [file for folder, pattern in _SOURCES.items() for file in sorted((ROOT / folder).rglob(pattern))]
    texts = {file: file.read_text() for file in files if file.name not in _GENERATED}
    return {file.relative_to(ROOT).as_posix(): _OF_OLD_WORKERS.sub("", text) for file, text in texts.items()}


def test_the_glossary_says_a_word_once_and_in_one_line() -> None:
    assert len(_WORDS) >= 30
    assert len(set(_WORDS)) == len(_WORDS)


@cache
def names() -> str:
    """Modules of the product, and what they define, one a line."""
    product = {name: each for name, each in read_code().modules.items() if name.startswith("drumline")}
    return "\n".join([*product, *(name for each in product.values() for name in each.functions | each.others)])


@pytest.mark.parametrize("word", _WORDS)
def test_every_word_of_the_glossary_is_part_of_a_name_of_the_code(word: str) -> None:
    assert re.search(word.replace(" ", "_?"), names(), re.IGNORECASE)


@pytest.mark.parametrize("word", sorted(_GIVEN_UP))
def test_no_word_that_was_given_up_is_used(word: str) -> None:
    used = re.compile(rf"(?<![a-z]){word}s?(?![a-z])", re.IGNORECASE)
    pages = {page.relative_to(ROOT).as_posix(): page.read_text() for page in PAGES}

    assert [name for name, text in {**sources(), **pages}.items() if used.search(text)] == []
