"""What users, workers and time do to the server, in any order, and what it must answer."""

from typing import Any

import httpx2
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from drumline.contracts.reasons import EndReason
from drumline.contracts.states import TERMINAL_RUN, DeviceState, MemberState, RunState
from machine.comparison import compare
from machine.model import BEGUN, CONFLICT, OK, Host, Model, Part
from machine.service import Service, Worker, body_of
from support.edge import EdgeServer
from support.facts import Facts
from support.invariants import ON_STEADY_CLOCKS, Watch

RUNS = 10
"""So many a history has at most, batches aside."""
SUSPECT_US = 15_000_000
REASONS = (
    *[EndReason.COMPLETED] * 4, EndReason.PROGRAM_ERROR, EndReason.BAD_PROGRAM, EndReason.KILLED, EndReason.SHIM_KILLED,
    EndReason.PEER_LOST, EndReason.CANCELLED, EndReason.PREEMPTED, EndReason.HANG,
)  # fmt: skip
BODIES = tuple(
    {"replicas": replicas, "user": user, "infrastructure": infrastructure, "queue_s": queue_s}
    for replicas, user, infrastructure, queue_s in ((1, 0, 3, None), (1, 1, 1, 100.0), (2, 0, 3, None), (4, 1, 3, None))
)
"""The last needs both hosts."""
WHICH = st.integers(0, 1000)
"""Which of those there are, counted around."""
RARELY = st.integers(0, 5).map(lambda number: number == 0)


class Drumline(RuleBasedStateMachine):
    """One history of a project of `server`, which a subclass names."""

    server: EdgeServer

    def __init__(self) -> None:
        super().__init__()
        self.service = Service(self.server)
        self.model = Model(self.service.core.clock.now())
        self.watch = Watch()
        self.clock = self.service.core.clock
        self.keys: dict[str, tuple[object, tuple[str, ...]]] = {}
        """Of each key the body and the runs that were acknowledged."""

    # users

    @initialize(bodies=st.lists(st.sampled_from(BODIES), min_size=1, max_size=3))
    def begin(self, bodies: list[dict[str, Any]]) -> None:
        for worker in self.service.workers:
            self.model.hosts[worker.host] = Host(worker.host)
            self.restart(worker, [])
        self.model.devices = {name: (DeviceState.FREE, None) for name in self.look().devices}
        for number, body in enumerate(bodies):
            self.submit(body, f"first-{number}")

    @precondition(lambda self: len(self.model.runs) < RUNS)
    @rule(body=st.sampled_from(BODIES), key=st.sampled_from(["first-0", "k1", "k2", "k3", "k4", "k5"]))
    def submit(self, body: dict[str, Any], key: str) -> None:
        self.create("runs", body_of(**body), key, [body])

    @precondition(lambda self: len(self.model.runs) < RUNS)
    @rule(bodies=st.lists(st.sampled_from(BODIES), min_size=1, max_size=3), key=st.sampled_from(["b1", "b2", "k1"]))
    def submit_batch(self, bodies: list[dict[str, Any]], key: str) -> None:
        self.create("runs:batch", {"runs": [body_of(**body) for body in bodies]}, key, bodies)

    @precondition(lambda self: self.model.runs and len(self.model.runs) < RUNS)
    @rule(which=WHICH, key=st.sampled_from(["r1", "r2"]))
    def rerun(self, which: int, key: str) -> None:
        run = self.pick(list(self.model.runs.values()), which)
        self.create(f"runs/{run.id}:rerun", {}, key, [run.submitted])

    @precondition(lambda self: self.model.runs)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        run = self.pick(list(self.model.runs.values()), which)
        self.same(self.service.post(f"runs/{run.id}:cancel", {}), self.model.cancel(run))

    # operators

    @rule(which=WHICH, draining=st.booleans())
    def drain(self, which: int, draining: bool) -> None:
        worker = self.pick(self.service.workers, which)
        self.service.post(f"hosts/{worker.host}:{'drain' if draining else 'undrain'}").raise_for_status()

    @rule(which=WHICH)
    def release(self, which: int) -> None:
        """The operator vouches for a device, and for every host."""
        device = self.pick(sorted(self.model.devices), which)
        state, _ = self.model.devices[device]
        released = state in (DeviceState.QUARANTINED, DeviceState.FREE)
        self.same(self.service.post(f"devices/{device}:release"), OK if released else CONFLICT)
        if released:
            self.model.devices[device] = (DeviceState.FREE, None)
        for worker in self.service.workers:
            self.service.post(f"hosts/{worker.host}:release").raise_for_status()

    # workers

    @precondition(lambda self: any(worker.up for worker in self.service.workers))
    @rule(which=WHICH)
    def work(self, which: int) -> None:
        """A worker learns of its members, claims them and starts them."""
        worker = self.pick([worker for worker in self.service.workers if worker.up], which)
        for part in self.beat(worker):
            self.claim_by(worker, part)
        for part in [part for part in worker.known if part.state in (MemberState.CLAIMED, MemberState.STARTING)]:
            self.report_by(worker, part, part.acked + 1, ["starting", "running"])

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, by=WHICH, stale_fence=RARELY, stale_life=RARELY)
    def claim(self, which: int, by: int, stale_fence: bool, stale_life: bool) -> None:
        part = self.pick(self.model.parts[::-1], which)
        worker = self.owner(part, by)
        self.claim_by(worker, part, self.fence(part, stale_fence), self.life(worker, stale_life))

    @precondition(lambda self: self.model.parts)
    @rule(
        which=WHICH, by=WHICH, stale_fence=RARELY, stale_life=RARELY, behind=st.integers(-2, 1),
        phases=st.lists(st.sampled_from(["", "", "starting", "running"]), min_size=1, max_size=3),
    )  # fmt: skip
    def report(
        self, *, which: int, by: int, stale_fence: bool, stale_life: bool, behind: int, phases: list[str]
    ) -> None:
        """New telemetry, some of it again, or behind a hole."""
        part = self.pick(self.model.parts[::-1], which)
        worker, first = self.owner(part, by), max(1, part.acked + 1 + behind)
        self.report_by(
            worker, part, first, phases, fence=self.fence(part, stale_fence), life=self.life(worker, stale_life)
        )

    @precondition(lambda self: any(part.state in BEGUN for part in self.model.parts))
    @rule(which=WHICH, reason=st.sampled_from(REASONS), unsent=st.sampled_from([0, 0, 2]), unproven=RARELY)
    def finish(self, which: int, reason: EndReason, unsent: int, unproven: bool) -> None:
        """A member that began is over; of its telemetry some may still be on its way."""
        part = self.pick([part for part in self.model.parts if part.state in BEGUN], which)
        worker = self.owner(part, 1)
        self.end_by(worker, part, reason, part.acked + unsent, proof=not unproven)

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, by=WHICH, reason=st.sampled_from(REASONS), stale_fence=RARELY, stale_life=RARELY)
    def end_any(self, which: int, by: int, reason: EndReason, stale_fence: bool, stale_life: bool) -> None:
        """The end of a member whatever it is: once more, too late, of another host."""
        part = self.pick(self.model.parts[::-1], which)
        worker = self.owner(part, by)
        self.end_by(
            worker, part, reason, part.acked, fence=self.fence(part, stale_fence), life=self.life(worker, stale_life)
        )

    @rule(which=WHICH)
    def die(self, which: int) -> None:
        """A host falls silent; what runs on it continues unseen."""
        self.pick(self.service.workers, which).up = False

    @rule(which=WHICH, kept=st.sets(st.integers(0, 3)))
    def return_with(self, which: int, kept: set[int]) -> None:
        """A worker starts again and finds some of its members alive."""
        worker = self.pick(self.service.workers, which)
        alive = [part for index, part in enumerate(worker.known) if index in kept]
        self.restart(worker, alive)

    # time

    @rule(which=WHICH)
    def beat_some(self, which: int) -> None:
        worker = self.pick(self.service.workers, which)
        if worker.up:
            self.beat(worker)

    @rule(seconds=st.sampled_from([1, 6, 20, 50, 61, 125]))
    def wait(self, seconds: int) -> None:
        """Time passes; workers that are up are heard all along."""
        while seconds > 0:
            step = min(seconds, 50)
            self.model.now = self.clock.advance(step)
            seconds -= step
            for worker in self.service.workers:
                if worker.up:
                    self.beat(worker)

    @rule()
    def reap(self) -> None:
        self.service.core.reap()
        self.model.reap()

    @rule()
    def schedule(self) -> None:
        mine = [run_id for run_id in self.service.core.schedule() if run_id in self.model.runs]
        facts, hosts = self.look(), self.service.hosts()
        for run_id in mine:
            run = self.model.runs[run_id]
            assert run.state is RunState.QUEUED, f"{run.id} was placed while {run.state}"
            row = facts.runs[run_id]
            members = _parts_of(facts, run_id)
            assert sum(len(devices) for *_, devices in members) == run.submitted["replicas"]
            for _, host_id, _, devices in members:
                assert hosts[host_id].drain_requested_at is None, f"{run.id} was placed on a draining host"
                assert self.model.hosts[host_id].beat > self.clock.now() - SUSPECT_US, f"{run.id} is on a silent host"
                assert all(self.model.devices[name][0] is DeviceState.FREE for name in devices), "taken twice"
            self.model.place(run, row.attempt_id or "", members)

    # what always holds

    @invariant()
    def the_tables_are_as_the_model_says(self) -> None:
        if not self.model.hosts:
            return
        lost = {host.id: host.lost_at is not None for host in self.service.hosts().values()}
        facts = self.look()
        compare(facts, lost, self.model)
        assert self.service.shown() == {run.id: run.state for run in self.model.runs.values()}
        for key, (_, runs) in self.keys.items():
            assert set(runs) <= set(facts.runs), f"runs of {key} were acknowledged, and are gone"

    def look(self) -> Facts:
        """What the tables hold, in which no invariant is broken."""
        facts = self.service.look(self.watch)
        broken = [*self.watch.broken(facts), *(breach for each in ON_STEADY_CLOCKS for breach in each(facts))]
        assert not broken, "\n".join(broken)
        return facts

    def teardown(self) -> None:
        """Once the faults stop, everything ends, and every device comes back."""
        try:
            if self.model.hosts:
                self.heal()
        finally:
            self.service.close()
            super().teardown()

    def heal(self) -> None:
        for worker in self.service.workers:
            self.service.post(f"hosts/{worker.host}:undrain").raise_for_status()
            self.restart(worker, [])
        for _ in range(4 * len(self.model.runs)):
            for worker in self.service.workers:  # one on which run after run had failed takes none until then
                self.service.post(f"hosts/{worker.host}:release").raise_for_status()
            for number in range(len(self.model.devices)):
                if self.model.devices[sorted(self.model.devices)[number]][0] is DeviceState.QUARANTINED:
                    self.release(number)
            self.wait(50)
            self.reap()
            self.schedule()
            for number in range(2 * len(self.service.workers)):
                self.work(number)
            for part in [part for part in self.model.parts if part.state in BEGUN]:
                self.end_by(self.owner(part, 1), part, EndReason.COMPLETED, part.acked)
            if not self.model.live():
                break
        self.the_tables_are_as_the_model_says()
        assert {run.state for run in self.model.runs.values()} <= TERMINAL_RUN
        assert {state for state, _ in self.model.devices.values()} == {DeviceState.FREE}

    # how it is done

    def create(self, path: str, body: object, key: str, submitted: list[dict[str, Any]]) -> None:
        """A key answers once and for all: the same body again replays, another is refused."""
        known = self.keys.get(f"{path} {key}")
        answer = self.service.post(path, body, key)
        if known is not None and known[0] != body:
            self.same(answer, 422)
            assert answer.json()["code"] == "idempotency_mismatch"
            return
        self.same(answer, 201)
        runs = tuple(answer.json()["runs"] if path == "runs:batch" else [answer.json()["run"]["id"]])
        assert (answer.headers.get("Idempotency-Replayed") == "true") == (known is not None)
        if known is not None:
            assert runs == known[1], f"{key} made {runs} after {known[1]}"
            return
        self.keys[f"{path} {key}"] = (body, runs)
        for place, (run_id, options) in enumerate(zip(runs, submitted, strict=True)):
            self.model.add(run_id, options, place)

    def beat(self, worker: Worker) -> list[Part]:
        """Heard: the answer brings exactly what is to claim, to stop and to kill. Returns what is to claim."""
        answer = worker.beat(worker.lives[-1])
        self.same(answer, self.model.heard(self.model.hosts[worker.host], worker.lives[-1]))
        news = {
            kind: {notice["member"] for notice in answer.json()[kind]} for kind in ("assigned", "cancelled", "fenced")
        }
        expected = self.model.news(worker.host, worker.lives[-1], worker.known)
        assert news == {kind: {part.id for part in parts} for kind, parts in expected.items()}
        return expected["assigned"]

    def restart(self, worker: Worker, alive: list[Part]) -> None:
        life = worker.register(alive)
        self.model.register(self.model.hosts[worker.host], life, {part.id for part in alive})

    def claim_by(self, worker: Worker, part: Part, fence: int = 0, life: str = "") -> None:
        fence, life = fence or part.fence, life or worker.lives[-1]
        expected = self.model.claim(part, self.model.hosts[worker.host], life, fence)
        self.same(worker.claim(part, life, fence), expected)
        if expected == OK and part not in worker.known:
            worker.known.append(part)

    def report_by(
        self, worker: Worker, part: Part, first: int, phases: list[str], *, fence: int = 0, life: str = ""
    ) -> None:
        fence, life = fence or part.fence, life or worker.lives[-1]
        expected = self.model.report(part, self.model.hosts[worker.host], life, fence, first=first, phases=phases)
        answer = worker.report(part, life, fence, first, phases)
        self.same(answer, expected)
        if expected == OK:
            assert answer.json()["acked_seq"] == part.acked

    def end_by(
        self,
        worker: Worker,
        part: Part,
        reason: EndReason,
        last: int,
        *,
        proof: bool = True,
        fence: int = 0,
        life: str = "",
    ) -> None:
        fence, life = fence or part.fence, life or worker.lives[-1]
        expected = self.model.end(
            part, self.model.hosts[worker.host], life, fence, reason=reason, last=last, proof=proof
        )
        self.same(worker.end(part, life, fence, reason, last=last, proof=proof), expected)
        if expected == OK and part in worker.known:
            worker.known.remove(part)

    def same(self, answer: httpx2.Response, expected: int) -> None:
        assert answer.status_code == expected, f"{answer.status_code}, expected {expected}: {answer.text}"

    def pick(self, there: list[Any], which: int) -> Any:  # Any: one of whatever is there
        return there[which % len(there)]

    def owner(self, part: Part, by: int) -> Worker:
        """Its host's worker; now and then the other one."""
        return next(worker for worker in self.service.workers if (worker.host == part.host) == bool(by % 8))

    def fence(self, part: Part, stale: bool) -> int:
        return part.fence + (1 if part.fence == 1 else -1) if stale else part.fence

    def life(self, worker: Worker, stale: bool) -> str:
        return worker.lives[0] if stale else worker.lives[-1]


def _parts_of(facts: Facts, run_id: str) -> list[tuple[str, str, int, list[str]]]:
    """Members of the newest attempt by rank: id, host, rank, devices."""
    members = sorted(facts.members_of[facts.runs[run_id].attempt_id or ""], key=lambda row: row.rank)
    return [
        (row.id, row.host_id, row.rank, [hold.device_id for hold in facts.holds if hold.member_id == row.id])
        for row in members
    ]
