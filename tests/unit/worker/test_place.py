"""Where a worker lives: the same after restarts and reboots, another for every copy."""

import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from drumline_worker.agent.identity import location_of
from drumline_worker.host.system import host_clock

CARD, OTHER_CARD = "52:54:00:12:34:56", "52:54:00:65:43:21"


class Boot:
    """A boot of the machine; of its clocks nothing else is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def boottime(self) -> float:
        raise NotImplementedError

    def now(self) -> datetime:
        raise NotImplementedError

    def boot_id(self) -> str:
        return self.name


def machine(
    root: Path, *, machine_id: str | None = "m1", cards: tuple[str, ...] = (CARD,), processes: str = "pid:[1]"
) -> Path:
    """What location_of reads of a machine."""
    (root / "etc").mkdir(parents=True)
    if machine_id is not None:
        (root / "etc/machine-id").write_text(f"{machine_id}\n")
    namespaces = root / "proc/self/ns"
    namespaces.mkdir(parents=True)
    (namespaces / "pid").symlink_to(processes)
    for number, card in enumerate(("00:00:00:00:00:00", *cards)):
        interface = root / f"sys/class/net/if{number}"
        interface.mkdir(parents=True)
        (interface / "address").write_text(f"{card}\n")
        if number:
            (interface / "device").mkdir()
    return root


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A worker's, with something in it."""
    made = tmp_path / "data"
    made.mkdir()
    (made / "worker.json").write_text("{}")
    return made


@pytest.fixture
def boot() -> Iterator[Boot]:
    """The running one; another name is another boot."""
    running = Boot("boot-1")
    token = host_clock.set(running)
    yield running
    host_clock.reset(token)


def test_this_machine_has_a_place_which_stays(data_dir: Path) -> None:
    assert location_of(data_dir) == location_of(data_dir) != ""


def test_a_link_to_the_directory_is_the_same_place(data_dir: Path) -> None:
    link = data_dir.with_name("link")
    link.symlink_to(data_dir)

    assert location_of(link) == location_of(data_dir)


@pytest.mark.parametrize("moved_in", [False, True])
def test_a_copied_directory_is_another_place(data_dir: Path, moved_in: bool) -> None:
    """Also one that took the path of the first."""
    first = location_of(data_dir)
    copy = data_dir.with_name("copy")
    shutil.copytree(data_dir, copy)
    if moved_in:
        data_dir.rename(data_dir.with_name("aside"))
        copy = copy.rename(data_dir)

    assert location_of(copy) != first


def test_a_reboot_leaves_the_place_as_it_is(tmp_path: Path, data_dir: Path, boot: Boot) -> None:
    system = machine(tmp_path / "system")
    first = location_of(data_dir, system)
    boot.name = "boot-2"

    assert location_of(data_dir, system) == first


@pytest.mark.parametrize("cards", [(OTHER_CARD,), (CARD, OTHER_CARD)])
def test_a_machine_with_another_network_card_is_another_place(
    tmp_path: Path, data_dir: Path, cards: tuple[str, ...]
) -> None:
    """A clone keeps its machine-id, and the path and inode of every file."""
    clone = machine(tmp_path / "clone", cards=cards)

    assert location_of(data_dir, clone) != location_of(data_dir, machine(tmp_path / "system"))


def test_a_machine_with_another_id_is_another_place(tmp_path: Path, data_dir: Path) -> None:
    other = machine(tmp_path / "other", machine_id="m2")

    assert location_of(data_dir, other) != location_of(data_dir, machine(tmp_path / "system"))


def test_order_of_network_cards_and_an_absent_machine_id_do_not_matter(tmp_path: Path, data_dir: Path) -> None:
    one = machine(tmp_path / "one", machine_id=None, cards=(CARD, OTHER_CARD))
    other = machine(tmp_path / "other", machine_id=None, cards=(OTHER_CARD, CARD))

    assert location_of(data_dir, one) == location_of(data_dir, other) != ""


def test_a_container_without_a_network_card_is_known_by_its_boot_only(
    tmp_path: Path, data_dir: Path, boot: Boot
) -> None:
    """Of two such on different nodes nothing else may differ; so after a reboot it is another place."""
    container = machine(tmp_path / "container", cards=())
    first = location_of(data_dir, container)
    assert location_of(data_dir, container) == first != ""
    boot.name = "boot-2"

    assert location_of(data_dir, container) != first


@pytest.mark.parametrize("cards", [(), (CARD,)])
def test_a_container_that_cannot_see_the_processes_of_before_is_another_place(
    tmp_path: Path, data_dir: Path, cards: tuple[str, ...]
) -> None:
    older = machine(tmp_path / "older", cards=cards)
    newer = machine(tmp_path / "newer", cards=cards, processes="pid:[2]")

    assert location_of(data_dir, newer) != location_of(data_dir, older)


def test_where_nothing_can_be_told_there_is_no_place(tmp_path: Path, data_dir: Path) -> None:
    assert location_of(data_dir, tmp_path / "nothing") == ""
    assert location_of(tmp_path / "no such directory") == ""
