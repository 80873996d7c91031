"""Bundles: a program as a zip, identified by its content.

`pack` makes the canonical zip of a file or directory: the same source gives the same bytes on every machine.
`check` judges any zip by its directory alone, `read` inflates one entry, `extract` all of them; none of the three
believes a size that the archive states, and none follows or makes a link.
"""

from drumline.bundle.archive import MAX_ENTRIES, MAX_PACKED_BYTES, MAX_UNPACKED_BYTES, ArchiveSource, Entry, check
from drumline.bundle.packing import digest, extract, pack, pack_source, read
from drumline.errors import BundleError

__all__ = [
    "MAX_ENTRIES",
    "MAX_PACKED_BYTES",
    "MAX_UNPACKED_BYTES",
    "ArchiveSource",
    "BundleError",
    "Entry",
    "check",
    "digest",
    "extract",
    "pack",
    "pack_source",
    "read",
]
