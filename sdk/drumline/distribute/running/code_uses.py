"""What a code object reads from outside itself: global names, closed-over names and the attributes it takes of them.

Read from the bytecode, whose instructions differ between Python 3.11 and 3.14; only names are taken from them.
"""

from __future__ import annotations

import dis
import weakref
from dataclasses import dataclass, field
from types import CodeType

_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_FREE_LOADS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ATTRIBUTE_WRITES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_LOCAL_STORES = frozenset({"STORE_FAST", "STORE_NAME", "STORE_DEREF", "STORE_GLOBAL"})
#: With these a function can read any name.
_READ_ANYTHING = frozenset({"globals", "eval", "exec"})


@dataclass(slots=True)
class Use:
    """How a name is used: as a ``whole`` (passed on, called, indexed), or through these attributes only."""

    whole: bool = False
    attributes: dict[str, Use] = field(default_factory=dict)

    def attribute(self, name: str) -> Use:
        """The use of an attribute, made on first mention."""
        return self.attributes.setdefault(name, Use())


@dataclass(slots=True)
class CodeUses:
    """The names that a function reads, nested functions included. ``first``: its first parameter (``self``)."""

    globals: dict[str, Use] = field(default_factory=dict)
    free: dict[str, Use] = field(default_factory=dict)
    modules: dict[str, Use] = field(default_factory=dict)
    """Modules that it imports itself."""
    first: Use = field(default_factory=Use)
    reads_anything: bool = False


_known: weakref.WeakKeyDictionary[CodeType, CodeUses] = weakref.WeakKeyDictionary()


def code_uses(code: CodeType) -> CodeUses:
    """What ``code`` reads; kept while the code lives."""
    uses = _known.get(code)
    if uses is None:
        uses = CodeUses()
        free = {name: uses.free.setdefault(name, Use()) for name in code.co_freevars}
        parameter = {code.co_varnames[0]: uses.first} if code.co_argcount else {}
        _Scan(code, uses, free | parameter).run()
        uses.reads_anything = bool(_READ_ANYTHING & uses.globals.keys())
        # super() takes the first parameter without loading it.
        uses.first.whole |= "super" in uses.globals and "__class__" in code.co_freevars
        _known[code] = uses
    return uses


class _Scan:
    """One pass over a code object and those nested in it. ``known``: the uses of the outer names it can see."""

    def __init__(self, code: CodeType, uses: CodeUses, known: dict[str, Use]) -> None:
        self._code = code
        self._uses = uses
        self._known = dict(known)
        self._closed_over = {*code.co_cellvars, *code.co_freevars}
        skipped = ("CACHE", "EXTENDED_ARG", "NOP")
        self._instructions = [i for i in dis.get_instructions(code) if i.opname not in skipped]

    def run(self) -> None:
        for position, instruction in enumerate(self._instructions):
            name, argument = instruction.opname, instruction.argval
            if name in _GLOBAL_LOADS:
                self._follow(self._uses.globals.setdefault(argument, Use()), position + 1)
            elif name in _FREE_LOADS:
                self._load(argument, position)
            elif name.startswith("LOAD_FAST") or name.endswith("LOAD_FAST"):
                self._load_local(name, argument, position)
            elif name == "IMPORT_NAME":
                self._import(position)
        for constant in self._code.co_consts:
            if isinstance(constant, CodeType):
                seen = {free: use for free, use in self._known.items() if free in constant.co_freevars}
                _Scan(constant, self._uses, seen).run()

    def _load_local(self, name: str, argument: str | tuple[str, ...], position: int) -> None:
        if isinstance(argument, str):
            if argument not in self._closed_over:  # else the cell itself, for a nested function
                self._load(argument, position)
            return
        # Two names by one instruction: what follows concerns the second.
        first, second = argument
        if not name.startswith("STORE_FAST") and first in self._known:
            self._known[first].whole = True
        self._load(second, position)

    def _load(self, name: str, position: int) -> None:
        use = self._known.get(name)
        if use is not None:
            self._follow(use, position + 1)

    def _follow(self, use: Use, position: int) -> None:
        """Notes the attributes that the instructions from ``position`` on take of the value just loaded."""
        while True:
            name = self._instructions[position].opname
            if name == "COPY" and self._instructions[position + 1].opname in _ATTRIBUTE_LOADS:
                position += 1  # self.n += 1
            elif name in _ATTRIBUTE_LOADS:
                use = use.attribute(self._instructions[position].argval)
                position += 1
            else:
                use.whole |= name not in _ATTRIBUTE_WRITES
                return

    def _import(self, position: int) -> None:
        level, names = (i.argval for i in self._instructions[position - 2 : position])
        if level:  # relative: which module that is, only the import can tell
            self._uses.reads_anything = True
            return
        path = self._instructions[position].argval
        use = self._uses.modules.setdefault(path if names else path.partition(".")[0], Use())
        for instruction in self._instructions[position + 1 :]:
            if instruction.opname == "IMPORT_FROM":
                taken = use.attribute(instruction.argval)
                taken.whole = True
            elif instruction.opname in _LOCAL_STORES:
                if not names:
                    self._known.setdefault(instruction.argval, use)
                    return
            else:
                return
