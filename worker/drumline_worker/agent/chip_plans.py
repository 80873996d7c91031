"""Plans for chips that are not there: what was compiled once is kept, and the largest batch that fits is looked for."""

import hashlib
import importlib.metadata
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import ValidationError

from drumline.contracts.plans import ProbedProgram, ProbeOrder
from drumline_worker.host.system import boottime

_MAX_KEPT = 500
_MAX_TRIES = 24
Try = Callable[[int], Awaitable[ProbedProgram | None]]
"""Compiles with a value of the batch parameter; None where that could not be planned."""
Tell = Callable[[str], Awaitable[None]]
Answer = dict[str, object]
"""The fields of a PlanReport."""
Probe = Callable[[ProbeOrder], Awaitable[Answer]]


class KeptPlans:
    """Compiled plans in a directory, by program, slice and compiler; the oldest go first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, key: str) -> ProbedProgram | None:
        """The plan of this key; None where there is none that can be read."""
        try:
            return ProbedProgram.model_validate_json((self._directory / f"{key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def keep(self, key: str, program: ProbedProgram) -> None:
        """Keeps a plan. A store that can't be written keeps none."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._directory / f"{key}.draft"
        draft.write_text(program.model_dump_json())
        draft.rename(self._directory / f"{key}.json")
        kept = sorted(self._directory.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in kept[: max(len(kept) - _MAX_KEPT, 0)]:
            file.unlink(missing_ok=True)


def key_of(order: ProbeOrder, library_sha256: str) -> str:
    """Everything that the figures depend on: the program's content and parameters, the slice, the compilers."""
    made_of = {
        **order.model_dump(mode="json", exclude={"plan", "limit_s", "platform"}),
        "libtpu": library_sha256,
        "jax": importlib.metadata.version("jax"),
        "jaxlib": importlib.metadata.version("jaxlib"),
        "drumline": importlib.metadata.version("drumline"),
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


class ChipPlanner:
    """Answers orders by `probe`, a process for each compilation, and by what it compiled before."""

    def __init__(self, kept: KeptPlans, library_sha256: str, probe: Probe, tell: Tell) -> None:
        self._kept = kept
        self._library_sha256 = library_sha256
        self._probe = probe
        self._tell = tell

    async def answer(self, order: ProbeOrder, compiler: str) -> Answer:
        """The plan, with the largest batch where one is looked for. The order's limit is for all of it."""
        until = boottime() + order.limit_s

        async def compile_with(value: int) -> ProbedProgram | None:
            assert order.batch_parameter is not None
            if boottime() >= until:
                return None
            parameters = {**order.parameters, order.batch_parameter: value}
            found = await self._compile(order.model_copy(update={"parameters": parameters}), until)
            program = found.get("program")
            return program if isinstance(program, ProbedProgram) else None

        await self._tell(f"{order.on}: compiling by {compiler}")
        answer = await self._compile(order, until)
        program = answer.get("program")
        if isinstance(program, ProbedProgram) and program.chips is not None and program.chips.batch is not None:
            return {"program": await search_batch(program, compile_with, self._tell)}
        return answer

    async def _compile(self, order: ProbeOrder, until: float) -> Answer:
        key = key_of(order, self._library_sha256)
        if (found := self._kept.find(key)) is not None:
            return {"program": found}
        answer = await self._probe(order.model_copy(update={"limit_s": max(until - boottime(), 1.0)}))
        if isinstance(program := answer.get("program"), ProbedProgram):
            self._kept.keep(key, program)
        return answer


async def search_batch(first: ProbedProgram, compile_with: Try, tell: Tell) -> ProbedProgram:
    """`first` with the largest value of its batch parameter that fits, and the smallest that does not.

    Values are doubled or halved until both are known, then bisected, in steps of the devices where the program's own
    value divides over them, so that no replica's batch is ragged.
    """
    chips = first.chips
    assert chips is not None
    assert chips.batch is not None
    search = chips.batch
    unit = chips.devices if search.value % chips.devices == 0 else 1
    fits, too_large = (search.value, None) if chips.fits else (0, search.value)
    tries, ended = 1, ""
    while too_large is None or too_large - fits > unit:
        if tries >= _MAX_TRIES:
            ended = f"{tries} values were tried"
            break
        value = fits * 2 if too_large is None else (fits + too_large) // 2 // unit * unit
        known = f"{search.parameter}={fits} fits" if fits else f"{search.parameter}={too_large} does not fit"
        await tell(f"{chips.slice}: {known}; trying {value}")
        found = await compile_with(value)
        tries += 1
        if found is None or found.chips is None or not found.chips.programs:
            ended = f"{search.parameter}={value} could not be planned"
            break
        if found.chips.fits:
            fits = value
        else:
            too_large = value
    batch = search.model_copy(update={"largest": fits or None, "too_large": too_large, "tries": tries, "ended": ended})
    return first.model_copy(update={"chips": chips.model_copy(update={"batch": batch})})
