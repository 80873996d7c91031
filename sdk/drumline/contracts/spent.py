"""The names of a run's seconds: what each of them went into."""

from enum import StrEnum


class Spent(StrEnum):
    """What a second of a run went into; `GROUPS` and `SENTENCES` have every member."""

    QUEUE = "queue"
    BACKOFF = "backoff"
    HANDOVER = "handover"
    BUNDLE = "bundle"
    LAUNCH = "launch"
    RENDEZVOUS = "rendezvous"
    OWN_CODE = "own_code"
    COMPILE = "compile"
    STEPS = "steps"
    REDONE_STEPS = "redone_steps"
    INPUT = "input"
    CHECKPOINT = "checkpoint"
    WAITING_FOR_TELEMETRY = "waiting_for_telemetry"
    FROZEN = "frozen"
    SERVER_AWAY = "server_away"
    HOST_LOST = "host_lost"
    ENDING = "ending"
    UNEXPLAINED = "unexplained"


class SpentGroup(StrEnum):
    """What names have in common."""

    WAITING = "waiting"
    ENVIRONMENT = "environment"
    PROGRAM = "program"
    STALL = "stall"
    ENDING = "ending"
    UNEXPLAINED = "unexplained"


PROGRAM_PHASES = (
    Spent.LAUNCH,
    Spent.RENDEZVOUS,
    Spent.OWN_CODE,
    Spent.COMPILE,
    Spent.STEPS,
    Spent.INPUT,
    Spent.CHECKPOINT,
    Spent.ENDING,
)
"""What a program's process is in, one at a time."""

GROUPS = {
    Spent.QUEUE: SpentGroup.WAITING,
    Spent.BACKOFF: SpentGroup.WAITING,
    Spent.HANDOVER: SpentGroup.ENVIRONMENT,
    Spent.BUNDLE: SpentGroup.ENVIRONMENT,
    Spent.LAUNCH: SpentGroup.ENVIRONMENT,
    Spent.RENDEZVOUS: SpentGroup.ENVIRONMENT,
    Spent.OWN_CODE: SpentGroup.PROGRAM,
    Spent.COMPILE: SpentGroup.PROGRAM,
    Spent.STEPS: SpentGroup.PROGRAM,
    Spent.REDONE_STEPS: SpentGroup.PROGRAM,
    Spent.INPUT: SpentGroup.PROGRAM,
    Spent.CHECKPOINT: SpentGroup.PROGRAM,
    Spent.WAITING_FOR_TELEMETRY: SpentGroup.STALL,
    Spent.FROZEN: SpentGroup.STALL,
    Spent.SERVER_AWAY: SpentGroup.STALL,
    Spent.HOST_LOST: SpentGroup.STALL,
    Spent.ENDING: SpentGroup.ENDING,
    Spent.UNEXPLAINED: SpentGroup.UNEXPLAINED,
}

SENTENCES = {
    Spent.QUEUE: "Waited for devices.",
    Spent.BACKOFF: "Waited before another attempt.",
    Spent.HANDOVER: "Placed, and not yet claimed by the worker.",
    Spent.BUNDLE: "The worker fetched and unpacked the program.",
    Spent.LAUNCH: "The process, JAX and the devices started.",
    Spent.RENDEZVOUS: "Waited for the other members of its gang to come together.",
    Spent.OWN_CODE: "The program's own code before its first step.",
    Spent.COMPILE: "Traced and compiled.",
    Spent.STEPS: "Steps that were done for the first time, with what the program does between them.",
    Spent.REDONE_STEPS: "Steps that an earlier attempt had done already.",
    Spent.INPUT: "Waited for the next batch of a distributed dataset.",
    Spent.CHECKPOINT: "Saved or restored a checkpoint.",
    Spent.WAITING_FOR_TELEMETRY: "Made to wait until its telemetry was taken.",
    Spent.FROZEN: "Its host ran nothing of it.",
    Spent.SERVER_AWAY: "The server could not be told of its end.",
    Spent.HOST_LOST: "Nothing was heard of its host any more.",
    Spent.ENDING: "Its processes ended, the last telemetry was sent.",
    Spent.UNEXPLAINED: "Nobody told what it went into.",
}
