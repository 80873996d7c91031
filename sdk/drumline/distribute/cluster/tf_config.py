"""``TFConfigClusterResolver``: the cluster that the variable TF_CONFIG holds as JSON."""

from __future__ import annotations

import json
import os
from typing import Any

from drumline.distribute.cluster.cluster_spec import ClusterSpec
from drumline.distribute.cluster.resolver import ClusterResolver, with_layer
from drumline.distribute.errors import InvalidTypeError, InvalidValueError, NotJSONError

VARIABLE = "TF_CONFIG"
#: Linux gives no longer one to a process.
_MAX_CHARACTERS = 131_072
_EXAMPLE = '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'


class TFConfigClusterResolver(ClusterResolver):
    """The cluster in TF_CONFIG, as TensorFlow's launchers write it.

        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}
        )
        dist.initialize(dist.cluster_resolver.TFConfigClusterResolver())

    ``task_type``, ``task_id``, ``rpc_layer``: said here, they count instead of what the variable says. Without the
    variable, or without a cluster in it, the cluster is empty. Each call reads it again.

    Its methods raise NotJSONError (a ValueError) for a variable that is no JSON, InvalidValueError for JSON of another
    form, and what ClusterSpec raises.
    """

    def __init__(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        environment: str | None = None,
    ) -> None:
        super().__init__(task_type, task_id, rpc_layer)
        self._environment = environment

    @property
    def task_type(self) -> str | None:
        if self._task_type is not None:
            return self._task_type
        kind = _section("task").get("type")
        if kind is not None and not isinstance(kind, str):
            raise InvalidValueError(f"{VARIABLE}: task.type must be a text; got {kind!r:.80}")
        return kind

    @task_type.setter
    def task_type(self, task_type: str | None) -> None:
        self._task_type = task_type

    @property
    def task_id(self) -> int | None:
        index = self._task_id if self._task_id is not None else _section("task").get("index")
        if index is None:
            return None
        try:
            if isinstance(index, (bool, float)):
                raise ValueError(index)
            return int(index)
        except (TypeError, ValueError):
            raise InvalidValueError(f"{VARIABLE}: task.index must be a whole number; got {index!r:.80}") from None

    @task_id.setter
    def task_id(self, task_id: int | None) -> None:
        self._task_id = task_id

    @property
    def rpc_layer(self) -> str | None:
        layer = self._rpc_layer if self._rpc_layer is not None else _read().get("rpc_layer")
        if layer is not None and not isinstance(layer, str):
            raise InvalidValueError(f"{VARIABLE}: rpc_layer must be a text; got {layer!r:.80}")
        return layer

    @rpc_layer.setter
    def rpc_layer(self, rpc_layer: str | None) -> None:
        self._rpc_layer = rpc_layer

    @property
    def environment(self) -> str | None:
        return self._environment

    def cluster_spec(self) -> ClusterSpec:
        tasks = _section("cluster")
        try:
            return ClusterSpec(tasks)
        except (InvalidTypeError, InvalidValueError) as error:
            raise type(error)(f"{VARIABLE}: {error}") from None

    def master(self, task_type: str | None = None, task_id: int | None = None, rpc_layer: str | None = None) -> str:
        """The address of a task; "" where the cluster has none or a single one; "session_master" where it is said."""
        session_master = _read().get("session_master")
        if session_master is not None:
            return str(session_master)
        cluster = self.cluster_spec()
        if not cluster or (len(cluster.jobs) == 1 and len(cluster.job_tasks(cluster.jobs[0])) == 1):
            return ""
        job = self.task_type if task_type is None else task_type
        index = self.task_id if task_id is None else task_id
        if job is None or index is None:
            raise InvalidValueError(f"{VARIABLE} does not say which task this process is; it needs, say, {_EXAMPLE}")
        return with_layer(cluster.task_address(job, index), self.rpc_layer if rpc_layer is None else rpc_layer)


def _section(name: str) -> dict[str, Any]:
    section = _read().get(name, {})
    if not isinstance(section, dict):
        kind = InvalidTypeError if name == "cluster" else InvalidValueError
        raise kind(f"{VARIABLE}: {name} must be an object; got {section!r:.80}; write, say, {_EXAMPLE}")
    return section


def _read() -> dict[str, Any]:
    text = os.environ.get(VARIABLE, "{}")
    if len(text) > _MAX_CHARACTERS:
        raise InvalidValueError(f"{VARIABLE} has {len(text)} characters, more than {_MAX_CHARACTERS}")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise NotJSONError(
            f"{VARIABLE}={text!r:.80} is no JSON: {error.msg}; write, say, {_EXAMPLE}", text, error.pos
        ) from None
    except RecursionError:
        raise InvalidValueError(f"{VARIABLE} is nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise InvalidValueError(f"{VARIABLE}={text!r:.80} can't be read: {error!s:.200}") from None
    if not isinstance(document, dict):
        raise InvalidValueError(f"{VARIABLE} must be an object; got {text!r:.80}; write, say, {_EXAMPLE}")
    return document
