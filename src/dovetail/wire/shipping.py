"""The messages by which files travel between agent and controller, where no folder is shared.

The agent asks and the controller answers, one line each. Contents travel in pieces, which name the
offset that they belong to: a piece that comes twice, or after a cut, does no harm. What a file must
have as a whole is named by its SHA-256, so that two versions of it never mix.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.wire.codec import Codec

PIECE_BYTES = 512 << 10
"""The most that one message has of a file: in base64 it fits into a line."""


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A whole file of a job: its name, size and SHA-256. Its pieces are asked for by these."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class AppendOutput:
    """What a job's workers on this node wrote, from `offset` of `stream` on, in base64.

    A file that begins anew is another stream. Answered with `ShippedTo`: the offset to go on from.
    """

    job: int
    stream: str
    offset: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """A piece of a checkpoint, which workers of `generation` or a later one wrote."""

    job: int
    lineage: int
    generation: int
    file: ShippedFile
    offset: int
    data: str = ""


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The newest checkpoint of a job here that is still to be shipped, by its step; -1: none."""

    job: int
    step: int


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """All jobs that have files on this node. Answered with `JobsOver`."""

    jobs: tuple[JobFiles, ...] = ()


@dataclass(frozen=True, slots=True)
class AskFiles:
    """What a worker needs to start: the script, and for one that trains the newest checkpoint.

    With `fresh` nothing of the job runs: it goes on from that checkpoint, and what workers of older
    generations saved is superseded.
    """

    job: int
    lineage: int
    generation: int
    step: int = -1
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class GetPiece:
    """Asks for the piece of a file from an offset on."""

    job: int
    lineage: int
    file: ShippedFile
    offset: int


@dataclass(frozen=True, slots=True)
class ShippedTo:
    """The controller has this many bytes of what is shipped."""

    offset: int


@dataclass(frozen=True, slots=True)
class JobsOver:
    """Those of the jobs that are over: their files may be removed once all is shipped."""

    jobs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesFound:
    """The files that were asked for; or `why` they must be awaited."""

    files: tuple[ShippedFile, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A piece of a file, in base64."""

    data: str


@dataclass(frozen=True, slots=True)
class ShippingRefused:
    """Why a message was not obeyed; with `forever` it never will be."""

    why: str
    forever: bool = False


ShippingRequest = AppendOutput | PutCheckpoint | NodeFiles | AskFiles | GetPiece
ShippingReply = ShippedTo | JobsOver | FilesFound | FilePiece | ShippingRefused
SHIPPING_REQUESTS: Codec[ShippingRequest] = Codec(
    {
        "AppendOutput": AppendOutput,
        "PutCheckpoint": PutCheckpoint,
        "NodeFiles": NodeFiles,
        "AskFiles": AskFiles,
        "GetPiece": GetPiece,
    }
)
SHIPPING_REPLIES: Codec[ShippingReply] = Codec(
    {
        "ShippedTo": ShippedTo,
        "JobsOver": JobsOver,
        "FilesFound": FilesFound,
        "FilePiece": FilePiece,
        "ShippingRefused": ShippingRefused,
    }
)
