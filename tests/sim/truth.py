"""What really happens, whatever anybody believes: which programs run where, and which have finished."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.host import Host
    from sim.shim import Shim
    from sim.world import World


class Truth:
    """Every execution of every run, in true time."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.running: dict[str, Shim] = {}
        """Live runners by member."""
        self.orphans: dict[str, Shim] = {}
        """Members that are over, and whose descendants hang in the kernel with the devices open."""
        self.completed: set[str] = set()
        """Members whose program returned its result."""
        self.executions = 0
        self._met: set[str] = set()

    def begins(self, shim: "Shim") -> None:
        """A runner starts."""
        self.executions += 1
        if shim.member in self.running:
            self._world.violation(f"{shim.member} runs twice at once")
        self.running[shim.member] = shim
        self.check_overlap()

    def ends(self, shim: "Shim") -> None:
        """A runner is dead."""
        self.running.pop(shim.member, None)
        if shim.completed:
            self.completed.add(shim.member)
            return
        for peer in self.gang(shim):
            peer.lose_peer()

    def meets(self, shim: "Shim") -> bool:
        """Whether all members of the gang have come to the meeting."""
        claimed = shim.order.claimed
        if len(self.gang(shim)) == claimed.rendezvous.size:
            self._met.add(claimed.attempt)
        return claimed.attempt in self._met

    def gang(self, shim: "Shim") -> "list[Shim]":
        """All live runners of the same attempt."""
        attempt = shim.order.claimed.attempt
        return [each for each in self.running.values() if each.order.claimed.attempt == attempt]

    def shims_on(self, host: "Host") -> "list[Shim]":
        """Of programs that run there, or left something behind that does."""
        return [shim for shim in (*self.running.values(), *self.orphans.values()) if shim.host is host]

    def check_overlap(self) -> None:
        """No two attempts of a run execute in the same instant, and no two members use a device."""
        attempts: dict[str, str] = {}
        users: dict[tuple[str, str], str] = {}
        for shim in (*self.orphans.values(), *self.running.values()):
            for device in () if shim.out_of_sight else shim.devices:
                other = users.setdefault((shim.host.name, device), shim.member)
                if other != shim.member:
                    self._world.violation(f"{device} is used by {other} and {shim.member} at once")
            if shim.host.frozen or shim.member in self.orphans:
                continue  # nothing moves there; when it thaws, this is looked at again
            claimed = shim.order.claimed
            first = attempts.setdefault(claimed.run, claimed.attempt)
            if first != claimed.attempt:
                self._world.violation(f"{claimed.run} executes twice at once: {first} and {claimed.attempt}")
