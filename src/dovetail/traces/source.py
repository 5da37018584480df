"""Reads the bytes of a trace file in pieces, UTF-16 as UTF-8, and rejects binary data.

A line longer than `LINE_LIMIT_BYTES` is an error at once, so that a file of one huge line is never
in memory.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import polars as pl

from dovetail.core.errors import InputError

LINE_LIMIT_BYTES = 1 << 20
"""The longest line, and the size of a piece: a line within one piece is short enough."""

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""What Windows writes first: PowerShell's `>` makes such files of any program's output."""
_SAMPLED, _ZEROS = 400, 0.9
"""The bytes by which UTF-16 without a mark is told, and the share of zeros that tells it."""
_TAR_MARK, _TAR_MARK_AT = b"ustar", 257


def parquet_columns(path: Path) -> list[str]:
    """Returns the column names of a Parquet file. Raises InputError if it is damaged."""
    try:
        return list(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise InputError(str(path), f"is not a readable Parquet file: {reason}") from None


def read_text_bytes(path: Path) -> bytes:
    """Returns the decompressed file as valid UTF-8 without a byte-order mark.

    Raises InputError with the line for damaged gzip, other encodings, binary files, long lines.
    """
    parts: list[bytes] = []
    lines, open_bytes = 1, 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    for part in pieces(path):
        lines, open_bytes = _check_piece(path, part, decoder, lines, open_bytes)
        parts.append(part)
    _decode(path, decoder, b"", lines, final=True)
    return b"".join(parts).removeprefix(codecs.BOM_UTF8)


def first_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """Returns the start of the decompressed file, unchecked, to detect its format."""
    return next(pieces(path, size), b"")


def pieces(path: Path, size: int = LINE_LIMIT_BYTES) -> Iterator[bytes]:
    """Yields the bytes of a file, decompressed, in pieces of at most `size`. Raises InputError."""
    lines = 1
    try:
        with _open(path) as stream:
            for part in _as_utf8(stream, size):
                yield part
                lines += part.count(b"\n")
    except UnicodeDecodeError:
        mend = "convert the file to UTF-8, for example with iconv"
        raise InputError(f"{path}, line {lines}", "the text is not UTF-16", mend) from None
    except EOFError:
        raise InputError(
            f"{path}, line {lines}", "the gzip data end too early", "the file is truncated"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}, line {lines}", f"the gzip data are damaged: {error}") from None
    except FileNotFoundError:
        raise InputError(str(path), "there is no such file") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as probe:
        zipped = probe.read(2) == GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def _as_utf8(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """Yields the pieces of a stream; one that begins with the mark of UTF-16 comes as UTF-8."""
    first = stream.read(size)
    encoding = _utf16_of(first)
    if not encoding:
        while first:
            yield first
            first = stream.read(size)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    while first:
        yield decoder.decode(first).encode()
        first = stream.read(size)
    decoder.decode(b"", final=True)


def _utf16_of(first: bytes) -> str:
    """Returns the name of the UTF-16 encoding of text that begins so, "" for others.

    Without a mark it is told by the zero in every pair of bytes that letters of English have.
    """
    if first.startswith(_UTF16):
        return "utf-16"
    high, low = first[:_SAMPLED:2], first[1:_SAMPLED:2]
    if len(low) < 2 or first.startswith((PARQUET_MAGIC, GZIP_MAGIC)):
        return ""
    if 0 not in high and low.count(0) > _ZEROS * len(low):
        return "utf-16-le"
    return "utf-16-be" if 0 not in low and high.count(0) > _ZEROS * len(high) else ""


def _check_piece(
    path: Path, part: bytes, decoder: codecs.IncrementalDecoder, lines: int, open_bytes: int
) -> tuple[int, int]:
    """Returns the line number and the bytes of the incomplete line after `part`."""
    first, last = part.find(b"\n"), part.rfind(b"\n")
    if open_bytes + (first if first >= 0 else len(part)) > LINE_LIMIT_BYTES:
        raise InputError(
            f"{path}, line {lines}",
            f"the line is longer than {LINE_LIMIT_BYTES} bytes",
            "expected one job per line",
        )
    zero = part.find(b"\0")
    if zero >= 0:
        line = lines + part.count(b"\n", 0, zero)
        tar = part[_TAR_MARK_AT : _TAR_MARK_AT + len(_TAR_MARK)] == _TAR_MARK
        mend = "this is a tar archive: unpack it first" if tar else "expected a text file"
        raise InputError(f"{path}, line {line}", "contains a zero byte", mend)
    _decode(path, decoder, part, lines)
    return lines + part.count(b"\n"), (
        len(part) - last - 1 if last >= 0 else open_bytes + len(part)
    )


def _decode(
    path: Path, decoder: codecs.IncrementalDecoder, part: bytes, lines: int, final: bool = False
) -> None:
    try:
        decoder.decode(part, final)
    except UnicodeDecodeError as error:
        # The decoder prepends bytes left over from the last piece; none of them is a newline.
        before = error.object[: error.start]
        line = lines + before.count(b"\n")
        column = len(before) - before.rfind(b"\n")
        where = f"{path}, line {line}, byte {column}"
        mend = "convert the file to UTF-8, for example with iconv"
        raise InputError(where, "the text is not UTF-8", mend) from None
