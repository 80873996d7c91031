"""Finds names that nothing uses (vulture), but for what users, files or a library call. Those of tests alone are dead.

Left out are the public surface, which a snapshot holds (tests/house/surface.json); fields of contracts, tables and
records of the engine, which JSON, SQL and observers name; and the names of `CALLED_BY`, each with who uses it.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parents[1]
SURFACE = ROOT / "tests" / "house" / "surface.json"
PRODUCT = ("sdk", "backend", "worker", "migrations/env.py", "scripts")
FIELDS = ("sdk/drumline/contracts/", "backend/drumline_server/storage/models/", "sdk/drumline/distribute/observe/")
DECORATORS = [
    "@*router.*", "@health.*", "@app.*",  # endpoints: FastAPI
    "@*.command", "@command", "@click.*",  # commands: click
    "@field_validator", "@model_validator", "@field_serializer", "@model_serializer",  # pydantic
    "@event.listens_for",  # SQLAlchemy
]  # fmt: skip
CALLED_BY = {
    "__getattr__": "Python, of a module", "__dir__": "Python, of a module", "__notes__": "traceback, of an exception",
    "memo": "copy.deepcopy, by place", "maxdict maxlist maxtuple maxlong maxother maxstring": "reprlib",
    "create_system external_attr": "zipfile, when it writes", "model_config": "pydantic",
    "data_received timeout_keep_alive_task disconnected": "asyncio and uvicorn, of its protocol and its cycle",
    "force_exit should_exit": "uvicorn, of its server",
    "process_bind_param process_result_value isolation_level": "SQLAlchemy and sqlite3",
    "autogen": "Alembic, by place", "DashboardHook": "hatchling, by scripts/hatch_build.py in pyproject",
    "Homes type_name verbose render_broken_contract": "import-linter, by pyproject",
    "format_commands": "click, for help", "all_at": "users: of run.reductions(name), which the snapshot has as a call",
    "histograms": "users: of run.media(), which the snapshot has as a call",
    "host_tracer_level python_tracer_level enable_hlo_proto": "jax.profiler, of its options",
    "_repr_mimebundle_ include exclude": "notebooks", "writable": "io", "DataFrame": "type checkers, in quotes",
    "never_nl log_errors case_sensitive": "RE2, of its options",
    "multiple_results tree_flatten tree_unflatten __jax_array__ _check_if_deleted": "JAX",
    "_show_state _show_attempt _show_member _show_placement _show_gap _show_metrics": "watching.py, by a kind of event",
    "_stop_readers": "atexit", "from_variable_aggregation has_value initializer": "ported code: names of tf.distribute",
    "addresses": "a test of the bound on addresses", "ServerTimes": "the server's clocks, where one factor scales them",
}  # fmt: skip


def find_dead_code(root: Path = ROOT) -> Iterator[str]:
    """`file:line: unused function 'name'` for each name below `root` that nothing uses."""
    vulture = Vulture(ignore_decorators=DECORATORS)
    vulture.scavenge([root / directory for directory in PRODUCT if (root / directory).exists()])
    spared = {*re.findall(r"\w+", json.dumps(json.loads(SURFACE.read_text())["python"])), *" ".join(CALLED_BY).split()}
    for item in vulture.get_unused_code():
        file = Path(item.filename).relative_to(root).as_posix()
        is_field = item.typ == "variable" and file.startswith(FIELDS)
        if item.name not in spared and not is_field:
            yield f"{file}:{item.first_lineno}: {item.message}"


if __name__ == "__main__":
    found = list(find_dead_code())
    print("\n".join([*found, f"dead code: {len(found)} names that nothing uses"]))
    sys.exit(bool(found))
