"""What a run's checkpoints add to why it waits: the host that has them, or the work that is lost with one."""

from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline_server.checkpoints import service as checkpoints
from drumline_server.models import Run
from drumline_server.scheduler.capacity import capacities


def with_checkpoint(session: Session, run: Run, why: api.Why | None) -> api.Why | None:
    """`why`, and what a run that has checkpoints waits for or loses; as it is for every other run."""
    if why is None or run.state not in (RunState.QUEUED, RunState.RETRY_WAIT):
        return why
    home = checkpoints.home_of(session, run)
    if home is None:
        return why
    if run.state == RunState.QUEUED and (tied := checkpoints.tied_to(session, [run.id]).get(run.id)):
        why = _tied(session, run, why, home, tied)
    return _with_loss(session, why, home)


def _tied(session: Session, run: Run, why: api.Why, home: checkpoints.Home, tied: frozenset[str]) -> api.Why:
    """Of a run that starts, or that its own hosts would not take, the first rule tells enough."""
    free = {host.host_id: host.free for host in capacities(session, run.project_id, run.platform)}
    if why.rule == "starting" and sum(free.get(host, 0) for host in tied) >= run.replicas:
        return why
    names = " or ".join(sorted(home.hosts.values()))
    return why.model_copy(
        update={
            "rule": "checkpoint_host",
            "sentence": f"Goes on from its checkpoint of step {home.step}, which only {names} can read;"
            f" waits for {run.replicas} replicas there.",
            "evidence": {**why.evidence, "step": home.step, "hosts": sorted(home.hosts.values())},
            "remedy": f"It starts when {names} is free. Workers that share a --checkpoint-dir can take over.",
        }
    )


def _with_loss(session: Session, why: api.Why, home: checkpoints.Home) -> api.Why:
    if home.lost is None:
        return why
    host = checkpoints.writer_of(session, home.lost)
    goes_on = f"it goes on from step {home.step}" if home.hosts else "it begins anew"
    loss = f"Its checkpoint of step {home.lost.step} was on {host}, which is lost: {goes_on}."
    evidence = {**why.evidence, "lost_step": home.lost.step, "lost_host": host}
    return why.model_copy(update={"sentence": f"{why.sentence} {loss}", "evidence": evidence})
