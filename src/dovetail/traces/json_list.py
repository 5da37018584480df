"""The entries of a huge JSON list, one at a time, so that neither file nor entry fills memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.traces.source import pieces

ENTRY_LIMIT = 1 << 24
"""The longest entry we hold, in characters; a Philly job with 1,000 attempts needs 300,000."""

_WORD = 32
"""A number or word cut off at the end of what was read is no longer than this."""

_BLANK = " \t\r\n"


def json_entries(path: Path) -> Iterator[tuple[int, object]]:
    """Yields (line, entry) for every entry of the file's list. Raises InputError."""
    feed = _Feed(path)
    feed.expect("[", "a JSON list is expected")
    if feed.peek() == "]":
        return
    while True:
        yield feed.entry()
        mark = feed.take()
        if mark == "]":
            return
        if mark != ",":
            raise feed.error("a comma or the end of the list is expected between entries")


class _Feed:
    """Holds the part of the text that is not parsed yet, and the line it begins on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = pieces(path)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def error(self, trouble: str) -> InputError:
        return InputError(f"{self._path}, line {self._line}", trouble)

    def expect(self, mark: str, trouble: str) -> None:
        if self.take() != mark:
            raise self.error(trouble)

    def peek(self) -> str:
        """Returns the next character that is not blank; '' at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANK:
                self._line += self._text[self._at] == "\n"
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self) -> str:
        mark = self.peek()
        self._at += len(mark)
        return mark

    def entry(self) -> tuple[int, object]:
        """Returns the next entry, reading on until it is whole."""
        self.peek()
        line = self._line
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._at)
                # A number or word at the very end of what was read may go on in the next piece.
                if end < len(self._text) or self._ended or isinstance(value, dict | list):
                    self._line += self._text.count("\n", self._at, end)
                    self._at = end
                    return line, value
            except RecursionError:
                raise self.error("the entry is nested too deeply") from None
            except ValueError as error:
                trouble = getattr(error, "msg", str(error))
                if self._ended or self._is_broken(error):
                    raise self.error(f"the JSON is broken or cut off: {trouble}") from None
            if len(self._text) - self._at > ENTRY_LIMIT:
                raise self.error(f"an entry is not closed within {ENTRY_LIMIT} characters")
            self._more()

    def _is_broken(self, error: ValueError) -> bool:
        """Tells whether the trouble is inside what was read, so that reading on cannot mend it."""
        at = getattr(error, "pos", len(self._text))
        # A string's trouble is told at its beginning, any other where the text stops making sense.
        return "string" not in str(error) and at < len(self._text) - _WORD

    def _more(self) -> bool:
        """Reads one more piece; tells whether there was one."""
        piece = next(self._pieces, b"")
        self._ended = not piece
        try:
            fresh = self._decoder.decode(piece, final=self._ended)
        except UnicodeDecodeError:
            raise self.error("the text is not UTF-8") from None
        self._text = self._text[self._at :] + fresh
        self._at = 0
        return not self._ended
