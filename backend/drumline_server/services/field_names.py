"""Names of what runs can be sorted and filtered by: found, resolved and written."""

import difflib

from sqlalchemy import select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline_server.base.errors import FilterError, Place
from drumline_server.services import filters
from drumline_server.storage.fields import find_fields
from drumline_server.storage.models import Field, RunField
from drumline_server.storage.run_sets import RUN_COLUMNS

_NEAREST = 3
_MOST_COMPARED = 2_000
"""Names of a project among which the nearest is looked for."""


def find_names(session: Session, project_id: str, contains: str, limit: int) -> api.RunFields:
    """Names to sort and filter by, which contain a text in any case; those that begin with it first."""
    wanted = contains.lower()
    own = [api.RunField(name=name, kind=column.kind) for name, column in RUN_COLUMNS.items() if wanted in name]
    query = select(Field.name, Field.id).where(Field.project_id == project_id)
    if contains:
        query = query.where(Field.name.icontains(contains, autoescape=True))
    rows = session.execute(query.order_by(Field.name).limit(limit + 1)).all()
    kinds = {field_id: session.scalar(_KIND.where(RunField.field_id == field_id)) for _, field_id in rows}
    stored = [
        api.RunField(name=short_name(name), kind="text" if kinds[field_id] == 3 else "number")
        for name, field_id in rows
        if kinds[field_id] is not None
    ]
    found = sorted([*own, *stored], key=lambda each: (not each.name.lower().startswith(wanted), each.name.count(".")))
    return api.RunFields(items=tuple(found[:limit]), more=len(found) > limit)


_KIND = select(RunField.kind).order_by(RunField.kind).limit(1)


def short_name(name: str) -> str:
    """A field's name as filters have it: a metric's last value by the bare name, where nothing else has it."""
    bare = name.removeprefix("last.")
    written = filters.write_name(name)
    is_free = bare != name and written == name and bare not in RUN_COLUMNS and bare != "result"
    return bare if is_free and bare.partition(".")[0] not in filters.GROUPS else written


def resolve_name(session: Session, project_id: str, text: str, field: str) -> str:
    """The name as fields are stored. Raises FilterError for one that no run of the project has."""
    name = full_name(filters.parse_name(text, field))
    if name not in RUN_COLUMNS and not find_fields(session, project_id, [name]):
        raise unknown_name(session, project_id, name, Place(0, len(text)), field)
    return name


def full_name(name: str) -> str:
    """The name as fields are stored: a bare one is a column of the run or the last value of a metric."""
    group, dot, inner = name.partition(".")
    if name in RUN_COLUMNS or name == "result" or (dot and inner and group in filters.GROUPS):
        return name
    return f"last.{name}"


def unknown_name(session: Session, project_id: str, name: str, place: Place, field: str) -> FilterError:
    """The refusal of a name that no run of the project has, with the nearest that there are."""
    names = session.scalars(select(Field.name).where(Field.project_id == project_id).limit(_MOST_COMPARED))
    known = [*RUN_COLUMNS, *map(short_name, names)]
    asked = short_name(name)[:100]
    same_end = [each for each in known if each.rpartition(".")[2].lower() == asked.rpartition(".")[2].lower()]
    near = [*same_end, *difflib.get_close_matches(asked, known, _NEAREST, cutoff=0.5)]
    message = f"no run has {asked!r}, neither as a column, parameter, result, label nor metric"
    return FilterError(message, place, field=field, nearest=list(dict.fromkeys(near))[:_NEAREST])
