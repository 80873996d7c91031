"""What a bundle may hold: the caps, and which names are safe on every file system."""

import re
import unicodedata

from drumline.errors import BundleError

MAX_PACKED_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES = 512 * 2**20
MAX_RATIO = 100
RATIO_FREE_BYTES = 2**20
"""So much may come out of any archive, however small: a short file of zeros is no bomb."""
MAX_ENTRIES = 10_000
MAX_DEPTH = 20
MAX_PATH_BYTES = 1_024

_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""Control characters, and those that turn the direction of text so that a name reads as another."""
_DEVICE_NAMES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))]
)


def check_name(name: str) -> None:
    """Raises BundleError unless `name` is a relative path that means the same, and nothing else, everywhere."""
    shown = shorten(name)
    _check_characters(name, shown)
    if name.startswith("/"):
        raise BundleError("absolute_path", f"entry {shown} is an absolute path; bundles hold relative paths", name)
    if len(name) >= 2 and name[1] == ":" and name[0].isascii() and name[0].isalpha():
        raise BundleError("drive_path", f"entry {shown} starts with a drive letter; bundles hold relative paths", name)
    if len(name.encode()) > MAX_PATH_BYTES:
        raise BundleError("path_too_long", f"the path of entry {shown} is over {MAX_PATH_BYTES} bytes", name)
    segments = name.removesuffix("/").split("/")
    if len(segments) > MAX_DEPTH:
        raise BundleError("too_deep", f"entry {shown} lies {len(segments)} levels deep; at most {MAX_DEPTH}", name)
    for segment in segments:
        _check_segment(segment, name, shown)


def fold(name: str) -> str:
    """The form under which two names are the same file on some file system: NFC, case folded, no final slash."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).removesuffix("/")


def shorten(name: str) -> str:
    """A name for a message: quoted, escaped where it cannot be shown, at most about 80 characters."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def _check_characters(name: str, shown: str) -> None:
    if "\\" in name:
        raise BundleError("backslash", f"entry {shown} holds a backslash; separate folders with /", name)
    if _INVISIBLE.search(name):
        raise BundleError("control_character", f"entry {shown} holds a control character; rename the file", name)


def _check_segment(segment: str, name: str, shown: str) -> None:
    if segment == "":
        raise BundleError("empty_segment", f"entry {shown} has an empty folder or file name", name)
    if segment in (".", ".."):
        raise BundleError("path_outside", f"entry {shown} has a {segment!r} in its path and may lead outside", name)
    if segment[-1] in ". ":
        raise BundleError("trailing_dot_or_space", f"entry {shown} has a name that ends in a dot or a space", name)
    if segment.split(".")[0].casefold() in _DEVICE_NAMES:
        raise BundleError("device_name", f"entry {shown} is named like a device of Windows; rename the file", name)
