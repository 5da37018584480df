"""What is wrong with a job spec: names, sizes and paths that nobody may submit.

The client checks a spec for a good message, and the controller again for safety.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite

from dovetail.wire.spec import JobSpec, Mount

SCRIPT_BYTES_MAX = 256 << 10
COMMAND_BYTES_MAX = 128 << 10
ENVIRONMENT_BYTES_MAX = 128 << 10
ENVIRONMENT_NAMES_MAX = 1000
AFTER_MAX = 10_000
TEXT_MAX = 200
PATH_MAX = 4096
GPUS_MAX = 1_000_000
RETRIES_MAX = 1000
MOUNTS_MAX = 100
SECONDS_MAX = 1e9

OURS = "DOVETAIL_"
"""Environment names with this beginning are ours to set."""
FILLED_IN = re.compile(r"%(?:%|(\d?)([jJAa])|u)", re.ASCII)
"""What is filled in in the file name of an output: job, array, index (with a width), user."""

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_LABELS = (
    *("user", "queue", "account", "qos", "reservation"),
    *("model", "recurrence", "gpu_type", "topology"),
)


def faults(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yields (field, sentence) for each thing that nobody may submit."""
    yield from _texts(spec)
    yield from _numbers(spec)
    yield from _program(spec)
    yield from _environment(spec)
    yield from _output(spec)
    yield from _container(spec)
    if len(spec.after) > AFTER_MAX:
        yield "after", f"{len(spec.after)} dependencies are over {AFTER_MAX}"


def is_text(text: str) -> bool:
    """Returns whether a text can be stored and passed to a program: UTF-8 without NUL."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _texts(spec: JobSpec) -> Iterator[tuple[str, str]]:
    name = spec.name
    if not name.strip() or "/" in name or name in (".", ".."):
        yield "name", "a name has a character, holds no '/', and is not '.' or '..'"
    for field in ("name", *_LABELS):
        text = getattr(spec, field)
        if len(text) > TEXT_MAX or not text.isprintable():
            yield field, f"it must be printable and no longer than {TEXT_MAX} characters"


def _numbers(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if spec.max_gpus > GPUS_MAX:
        yield "gpus", f"{spec.max_gpus} GPUs are over {GPUS_MAX}"
    if not isfinite(spec.priority):
        yield "priority", "it must be a finite number"
    for field in (
        *("batch_size", "cpus", "memory_bytes"),
        *("duration_s", "restart_s", "grace_s", "begin_s"),
    ):
        value = getattr(spec, field)
        if not 0 <= value < float("inf"):
            yield field, "it must be a finite number, not below 0"
    for field in ("time_limit_s", "deadline_s"):
        if not getattr(spec, field) > 0:
            yield field, "it must be above 0"
    for field in ("duration_s", "restart_s", "grace_s", "begin_s"):
        if getattr(spec, field) > SECONDS_MAX:
            yield field, f"it must not be over {SECONDS_MAX:g} seconds"
    if spec.ntasks < 0:
        yield "ntasks", "it is 1 or more; 0 means that it is not given"
    if spec.retries > RETRIES_MAX:
        yield "retries", f"{spec.retries} retries are over {RETRIES_MAX}"


def _program(spec: JobSpec) -> Iterator[tuple[str, str]]:
    if not all(is_text(word) for word in spec.command):
        yield "command", "a word is no UTF-8 text, or holds a NUL"
    elif sum(len(word.encode()) + 1 for word in spec.command) > COMMAND_BYTES_MAX:
        yield "command", f"it is longer than {COMMAND_BYTES_MAX} bytes"
    elif spec.command and not spec.command[0]:
        yield "command", "its first word is empty"
    if spec.script:
        if not is_text(spec.script):
            yield "script", "it is no UTF-8 text, or holds a NUL"
        elif len(spec.script.encode()) > SCRIPT_BYTES_MAX:
            yield "script", f"it is longer than {SCRIPT_BYTES_MAX >> 10} KiB"
        elif not spec.script.startswith("#!"):
            yield "script", "its first line must name its interpreter, as in #!/bin/bash"
        elif "\r\n" in spec.script:
            yield "script", "it has the line ends of DOS, which no shell reads (dos2unix mends it)"


def _environment(spec: JobSpec) -> Iterator[tuple[str, str]]:
    names = [name for name, _ in spec.environment]
    if len(names) > ENVIRONMENT_NAMES_MAX:
        yield "environment", f"{len(names)} variables are over {ENVIRONMENT_NAMES_MAX}"
    if len(set(names)) < len(names):
        yield "environment", "a variable is set twice"
    for name, value in spec.environment:
        if not _ENVIRONMENT_NAME.match(name):
            yield "environment", f"{name[:40]!r} is no name of a variable"
        elif name.startswith(OURS):
            yield "environment", f"{name[:40]} is ours to set, as all that begins with {OURS}"
        elif not is_text(value):
            yield "environment", f"the value of {name[:40]} is no UTF-8 text, or holds a NUL"
    if sum(len(n) + len(v) + 2 for n, v in spec.environment) > ENVIRONMENT_BYTES_MAX:
        yield "environment", f"it is longer than {ENVIRONMENT_BYTES_MAX} characters"


def _output(spec: JobSpec) -> Iterator[tuple[str, str]]:
    for field, path in (("workdir", spec.workdir), ("output", spec.output)):
        if not path and field == "output":
            return
        parts = path.split("/")
        if not path.startswith("/") or ".." in parts or "." in parts:
            yield field, "it must be an absolute path without '.' and '..'"
        if len(path) > PATH_MAX or not is_text(path) or not path.isprintable():
            yield field, f"it must be printable and no longer than {PATH_MAX} characters"
    name = spec.output.rpartition("/")[2]
    if not name:
        yield "output", "it names a folder, not a file"
    for part in FILLED_IN.sub("", name).split("%")[1:]:
        known = (
            "%j job, %A array, %a index, %x name, %u user, %% percent; all workers write into one"
        )
        yield "output", f"'%{part[:1]}' is unknown: {known}"


def _container(spec: JobSpec) -> Iterator[tuple[str, str]]:
    image = spec.container_image
    if not image:
        if spec.container_mounts:
            yield "container_mounts", "they are for a container: name its image (container_image)"
        return
    if len(image) > PATH_MAX or not image.isprintable() or " " in image or image[0] == "-":
        yield "container_image", "it is a name as in docker.io/library/python:3.11, or a path"
    elif image[0] == "/" and not _is_plain_path(image):
        yield "container_image", "a path must be absolute and without '.' and '..'"
    if spec.paced:
        yield "container_image", "a synthetic job is a clock and runs in no container"
    if spec.workdir == "/":
        yield "container_image", "the working directory / would hide the image: specify another"
    if len(spec.container_mounts) > MOUNTS_MAX:
        yield "container_mounts", f"{len(spec.container_mounts)} mounts are over {MOUNTS_MAX}"
    yield from _mounts(spec.container_mounts)


def _mounts(mounts: Sequence[Mount]) -> Iterator[tuple[str, str]]:
    destinations: set[str] = set()
    for mount in mounts:
        if not (_is_plain_path(mount.source) and _is_plain_path(mount.destination)):
            what = "both paths must be absolute, printable and without '.' and '..'"
            yield "container_mounts", f"{mount.source[:60]}:{mount.destination[:60]}: {what}"
        elif mount.destination == "/":
            yield "container_mounts", "a mount at / would hide the image"
        elif mount.destination in destinations:
            yield "container_mounts", f"two mounts have the destination {mount.destination[:60]}"
        destinations.add(mount.destination)


def _is_plain_path(path: str) -> bool:
    parts = path.split("/")
    is_absolute = path.startswith("/") and ".." not in parts and "." not in parts
    return is_absolute and path.isprintable() and len(path) <= PATH_MAX
