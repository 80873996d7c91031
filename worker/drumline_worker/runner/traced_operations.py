"""What the operations of a trace are, by the names that XLA and the libraries below it give them. Pure."""

import re
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What time that is spent in it counts as."""

    COMPUTING = "computing"
    COLLECTIVE = "collective"
    WAITING = "waiting"
    """For a copy or the host: the device is idle meanwhile."""


class TracedOperation(NamedTuple):
    """One of the compiled program, or a kernel that is none of it."""

    name: str
    kind: Kind


_EXCHANGES = (
    r"(all[-_]reduce|all[-_]gather|all[-_]to[-_]all|ragged[-_]all[-_]to[-_]all|reduce[-_]scatter|psum[-_]scatter"
    r"|collective[-_]permute|collective[-_]broadcast|ppermute|pbroadcast|psum|pmax|pmin|async-collective)"
)
_COLLECTIVE = re.compile(_EXCHANGES + r"(start|done|update|invariant|scatter|fusion|clone|[-_.\d])*$")
"""What XLA, or JAX by the primitive, calls an exchange between devices, or what it made of one."""
_INSTRUCTION = re.compile(r"(?:ROOT )?%?([^\s=(]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
"""The first word before a bracket, as a shape has a bracket only after a space, a colon or another bracket."""
_CALLEE = re.compile(r"calls=%?([\w.-]+)")
_WRAPPERS = re.compile(r"(fusion|call|custom-call|async-(start|update|done))$")
_TRANSFER = re.compile(r"(send|recv)(-done)?$")
_HOST_COPY = re.compile(r"(Memcpy(H2D|D2H)|Copy(HostToDevice|DeviceToHost))\b")
"""What tracers of CUDA and ROCm call a copy between a GPU and its host; the GPU's copy engines do it."""


def by_name(name: str) -> TracedOperation:
    """Of an operation that only has a name."""
    return TracedOperation(name, Kind.COLLECTIVE if _COLLECTIVE.match(name) else Kind.COMPUTING)


def by_kernel(kernel: str, operation: str | None) -> TracedOperation:
    """Of a kernel or copy of a GPU; `operation`: as XLA calls what it belongs to, where the trace says so."""
    if "nccl" in kernel.lower():  # RCCL's kernels have the same names
        return TracedOperation(kernel, Kind.COLLECTIVE)
    named = by_name(operation or kernel)
    if named.kind is Kind.COMPUTING and _HOST_COPY.match(kernel):
        return TracedOperation(named.name, Kind.WAITING)
    return named


def by_instruction(text: str) -> TracedOperation:
    """Of a TPU's operation, which is named by its whole HLO instruction, `%name = shape opcode(operands), ...`."""
    instruction = _INSTRUCTION.match(text)
    opcode = _OPCODE.search(text, instruction.end() - 1) if instruction else None
    if instruction is None or opcode is None:
        return by_name(text.removeprefix("%"))
    return TracedOperation(instruction[1], _kind(instruction[1], opcode[1], text))


def _kind(name: str, opcode: str, text: str) -> Kind:
    """The opcode says it; the name of an instruction is often that of the line of the program it comes from."""
    if _WRAPPERS.match(opcode):
        callee = _CALLEE.search(text)
        if _COLLECTIVE.match(name) or (callee and _COLLECTIVE.match(callee[1])):
            return Kind.COLLECTIVE
    elif _TRANSFER.match(opcode):
        if not _is_of_host(text):
            return Kind.COLLECTIVE
    elif _COLLECTIVE.match(opcode):
        return Kind.COLLECTIVE
    return Kind.WAITING if opcode.endswith("-done") else Kind.COMPUTING


def _is_of_host(text: str) -> bool:
    """Whether the other end is the program's host; by way of their hosts slices exchange with each other, too."""
    return "is_host_transfer=true" in text and "frontend_attributes={" in text and "megascale" not in text
