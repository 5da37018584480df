"""Reads jobs in YAML: one job, several under `jobs:`, or several documents.

Only mappings, lists and texts are used. The field decides the type of a text, not YAML (`no` may be
a name, `1:30` is a duration). Anchors, aliases and tags are errors: only texts are built, and a
small file cannot expand to a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dovetail.core.errors import InputError
from dovetail.jobspec.draft import FieldValue, JobDraft, check_known, parsing
from dovetail.jobspec.values import own_value

JOBS_MAX = 1000
DEPTH_MAX = 10
"""The deepest nesting of lists and mappings; parsing takes time quadratic in the depth."""
_JOBS = "jobs"
_NULL = "tag:yaml.org,2002:null"


def read_drafts(content: str, file: str, own: Mapping[str, str]) -> list[JobDraft]:
    """Returns the jobs of a YAML text, in order. Raises InputError.

    Fields next to `jobs:` are defaults for all jobs under it.
    """
    reader = _Reader(file, own)
    drafts: list[JobDraft] = []
    for document in reader.documents(content):
        drafts += reader.jobs(document)
        if len(drafts) > JOBS_MAX:
            raise InputError(file, f"it contains more than {JOBS_MAX} jobs")
    if not drafts:
        raise InputError(file, "it contains no jobs")
    return drafts


class _Reader:
    """Converts YAML nodes to drafts, with the line of each field."""

    def __init__(self, file: str, own: Mapping[str, str]) -> None:
        self._file = file
        self._own = own

    def documents(self, content: str) -> Iterator[Node]:
        """Yields the root of each document that is not empty."""
        try:
            self._check_events(content)
            for node in yaml.compose_all(content, Loader=yaml.SafeLoader):
                if node is not None and node.tag != _NULL:
                    yield node
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = self._file if mark is None else f"{self._file}, line {mark.line + 1}"
            raise InputError(
                where, f"this is not valid YAML: {error.problem or error.context}"
            ) from None
        except yaml.YAMLError as error:
            raise InputError(self._file, f"this is not valid YAML: {error}") from None

    def _check_events(self, content: str) -> None:
        depth = 0
        for event in yaml.parse(content, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            where = f"{self._file}, line {event.start_mark.line + 1}"
            if getattr(event, "anchor", None):
                raise InputError(
                    where,
                    "anchors and aliases are not supported",
                    "write the values out, or next to jobs:",
                )
            if depth > DEPTH_MAX:
                raise InputError(where, "it is nested too deeply")
            tag = getattr(event, "tag", None)
            if tag and tag != "!":
                raise InputError(where, f"the tag {str(tag)[:40]} is not supported")

    def jobs(self, root: Node) -> Iterator[JobDraft]:
        """Yields the jobs of one document."""
        fields = dict(self._pairs(root, "a job is a mapping of fields, as in `gpus: 2`"))
        listed = next((value for key, value in fields.items() if key.value == _JOBS), None)
        shared = self._draft(
            JobDraft(self._where(root)), {k: v for k, v in fields.items() if k.value != _JOBS}
        )
        if listed is None:
            yield shared
            return
        if not isinstance(listed, SequenceNode) or not listed.value:
            raise InputError(self._where(listed), "jobs: expected a list of jobs")
        for item in listed.value:
            pairs = dict(self._pairs(item, "a job is a mapping of fields, as in `gpus: 2`"))
            yield self._draft(shared.copy(self._where(item)), pairs)

    def _draft(self, draft: JobDraft, fields: Mapping[ScalarNode, Node]) -> JobDraft:
        for key, node in fields.items():
            name, where = key.value, self._where(key)
            check_known(name, where)
            if name == "environment":
                draft.put(name, tuple(self._environment(node)), where)
            elif name == "command" and isinstance(node, SequenceNode):
                draft.put(name, tuple(self._text(item, name) for item in node.value), where)
            elif name in ("after", "array", "container_mounts") and isinstance(node, SequenceNode):
                joined = ",".join(self._text(item, name) for item in node.value)
                draft.parse(name, joined, where)
            else:
                draft.parse(name, self._text(node, name), where)
        draft.entries.setdefault("name", FieldValue(Path(self._file).stem, self._file))
        return draft

    def _environment(self, node: Node) -> Iterator[tuple[str, str]]:
        for key, value in self._pairs(node, "environment: expected a mapping, as in `EPOCHS: 3`"):
            if value.tag == _NULL and isinstance(value, ScalarNode) and not value.value:
                with parsing(self._where(key), "environment"):
                    value_of_own = own_value(key.value, self._own)
                yield key.value, value_of_own
            else:
                yield key.value, self._text(value, "environment")

    def _pairs(self, node: Node, expected: str) -> list[tuple[ScalarNode, Node]]:
        if not isinstance(node, MappingNode):
            raise InputError(self._where(node), expected)
        seen: dict[str, None] = {}
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise InputError(self._where(key), "the name of a field must be a text")
            if key.value in seen:
                raise InputError(self._where(key), f"field '{key.value[:60]}' occurs twice")
            seen[key.value] = None
        return list(node.value)

    def _text(self, node: Node, name: str) -> str:
        if not isinstance(node, ScalarNode):
            kind = "a list" if isinstance(node, SequenceNode) else "a mapping"
            raise InputError(self._where(node), f"{name}: expected a text, not {kind}")
        if node.tag == _NULL and not node.value:
            raise InputError(self._where(node), f"{name}: it has no value")
        return str(node.value)

    def _where(self, node: Node) -> str:
        return f"{self._file}, line {node.start_mark.line + 1}"
