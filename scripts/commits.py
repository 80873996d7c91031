"""Checks what commits are called: `scope: imperative summary` in 72 characters, an empty line, then why.

    python scripts/commits.py [BASE [CHECKOUT]]

looks at the commits after BASE, merges excepted. In a shallow clone that does not reach
back to BASE all that it holds came later and is looked at; its oldest commits, whose parents are cut off, count too.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BASE = "46c5e6f3ea60da1afa81b65ff6b6829c0a6b2473"
"""The last commit of the time before the rule, with which most did not comply."""
MAX_SUMMARY = 72
_SUMMARY = re.compile(r"[a-z][a-z0-9_./-]*(, [a-z][a-z0-9_./-]*)*: (?P<verb>[a-z][a-z-]*)(?= |$)(?P<rest>.*)")
_NOT_IMPERATIVE = re.compile(r".*(?:[^e]ed|ing|[^s]s)$")
"""The past, the participle, the third person."""
_STILL_IMPERATIVE = frozenset({"bring", "embed", "focus", "ping", "shed", "sing", "spring", "string", "wed"})


def find_flaws(message: str) -> Iterator[str]:
    """What is wrong with a commit's message, in words."""
    summary, *rest = message.rstrip("\n").split("\n")
    found = _SUMMARY.fullmatch(summary)
    if len(summary) > MAX_SUMMARY:
        yield f"{len(summary)} characters; {MAX_SUMMARY} are shown everywhere"
    if found is None:
        yield "not of the form 'scope: imperative summary' in lower case"
    elif _NOT_IMPERATIVE.fullmatch(verb := found["verb"]) and verb not in _STILL_IMPERATIVE:
        yield f"'{verb}' is no imperative: say what the commit does as an order, such as 'add', 'keep', 'drop'"
    if summary.endswith("."):
        yield "a full stop at the end of a title"
    if rest and rest[0]:
        yield "no empty line below the summary"


def main(base: str, directory: Path) -> int:
    """The exit code: 1 where a message has a flaw. Says why where nothing can be checked, which is no failure."""
    try:
        messages = list(_messages(base, directory))
    except _NothingToCheckError as reason:
        print(f"commit messages: not checked, {reason}")
        return 0
    flaws = [
        f"{commit[:9]} {message.splitlines()[0]}\n  {flaw}"
        for commit, message in messages
        for flaw in find_flaws(message)
    ]
    print("\n".join([*flaws, f"commit messages: {len(messages)} checked, {len(flaws)} flaws"]))
    return 1 if flaws else 0


class _NothingToCheckError(Exception):
    """No history here that tells which commits are new."""


def _messages(base: str, directory: Path) -> Iterator[tuple[str, str]]:
    if not (directory / ".git").exists():
        raise _NothingToCheckError("this is no git checkout")
    try:
        is_shallow = _git(directory, "rev-parse", "--is-shallow-repository").strip() == "true"
    except (OSError, subprocess.CalledProcessError) as error:
        raise _NothingToCheckError(f"git does not answer ({error})") from None
    try:
        _git(directory, "merge-base", "--is-ancestor", base, "HEAD")
        commits = f"{base}..HEAD"
    except subprocess.CalledProcessError:
        if not is_shallow:
            raise _NothingToCheckError(f"the history has no commit {base} to begin after") from None
        commits = "HEAD"
    log = _git(directory, "log", "--no-merges", "--format=%H%n%B%x00", commits)
    for entry in filter(str.strip, log.split("\0")):
        commit, _, message = entry.lstrip("\n").partition("\n")
        yield commit, message


def _git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout


if __name__ == "__main__":
    _given = dict(enumerate(sys.argv))
    sys.exit(main(_given.get(1, BASE), Path(_given.get(2, Path(__file__).parents[1]))))
