"""Reads the entries of a huge JSON list one by one, with bounded memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.traces.source import pieces

ENTRY_LIMIT = 1 << 24
"""The longest entry in characters; a Philly job with 1,000 attempts needs 300,000."""

_WORD = 32
"""The longest number or literal that the end of a piece may split, in characters."""

_BLANK = " \t\r\n"


def json_entries(path: Path) -> Iterator[tuple[int, object]]:
    """Yields the line and the value of each entry of a file. Raises InputError."""
    feed = _Feed(path)
    if feed.take() != "[":
        raise feed.error("expected a JSON list")
    if feed.peek() == "]":
        return
    while True:
        yield feed.entry()
        mark = feed.take()
        if mark == "]":
            return
        if mark != ",":
            raise feed.error("expected a comma or the end of the list")


class _Feed:
    """The text that is not parsed yet, and the line on which it begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = pieces(path)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False

    def error(self, what: str) -> InputError:
        return InputError(f"{self._path}, line {self._line}", what)

    def peek(self) -> str:
        """Returns the next character that is not whitespace; '' at the end."""
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
        """Returns the line and the value of the next entry; reads pieces until it is complete."""
        self.peek()
        line = self._line
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self._text, self._at)
                # A number or literal at the very end may continue in the next piece.
                if end < len(self._text) or self._ended or isinstance(value, dict | list):
                    self._line += self._text.count("\n", self._at, end)
                    self._at = end
                    return line, value
            except RecursionError:
                raise self.error("the entry is nested too deeply") from None
            except ValueError as error:
                what = getattr(error, "msg", str(error))
                if self._ended or self._is_broken(error):
                    raise self.error(f"the JSON is invalid or truncated: {what}") from None
            if len(self._text) - self._at > ENTRY_LIMIT:
                raise self.error(f"an entry does not end within {ENTRY_LIMIT} characters")
            self._more()

    def _is_broken(self, error: ValueError) -> bool:
        """True if the error is inside the text so far, so that more text cannot resolve it."""
        at = getattr(error, "pos", len(self._text))
        # An error in a string is reported at the string's beginning, any other where it occurs.
        return "string" not in str(error) and at < len(self._text) - _WORD

    def _more(self) -> bool:
        """Reads the next piece. Returns False at the end of the file."""
        piece = next(self._pieces, b"")
        self._ended = not piece
        try:
            fresh = self._decoder.decode(piece, final=self._ended)
        except UnicodeDecodeError:
            raise self.error("the text is not UTF-8") from None
        self._text = self._text[self._at :] + fresh
        self._at = 0
        return not self._ended
