"""The join word: the address of a controller, whom to expect there, and the secret of one node.

It is a line in a file that its owner alone can read, never part of a command or an environment:
other users of a machine can read those.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from dataclasses import dataclass
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?", re.ASCII)
"""The name of a node: as of a host, 64 characters at most."""
CLIENT = "-client"
"""Whose secret clients have: the name of no node, as it begins with a hyphen."""
_FORM = re.compile(
    r"(?P<host>[^#\s]+):(?P<port>\d{1,5})#(?P<print>[0-9a-f]{64})#"
    r"(?P<name>[A-Za-z0-9._-]{1,64}):(?P<secret>[0-9a-f]{64})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class JoinWord:
    """`HOST:PORT#FINGERPRINT#NAME:SECRET`. The fingerprint is the SHA-256 of a certificate."""

    host: str
    port: int
    fingerprint: str
    name: str
    secret: str

    @property
    def text(self) -> str:
        """The word as its file has it."""
        return f"{self.host}:{self.port}#{self.fingerprint}#{self.name}:{self.secret}"

    def write(self, path: Path) -> None:
        """Writes the file, for its owner alone."""
        write_whole(path, self.text + "\n", mode=PRIVATE)

    @staticmethod
    def read(path: Path) -> JoinWord:
        """Returns the word of a file. Raises InputError, also if others may read the file."""
        try:
            with open(path, encoding="ascii") as file:
                seen = os.fstat(file.fileno())
                text = file.read(4096).strip()
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            text = ""
        if seen.st_mode & 0o077:
            raise InputError(str(path), "other users may read it", f"chmod 600 {path}")
        return JoinWord.parse(text, str(path))

    @staticmethod
    def parse(text: str, where: str) -> JoinWord:
        """Returns the word of a text. Raises InputError, which does not repeat the text."""
        match = _FORM.fullmatch(text)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise InputError(
                where,
                "it is no join word",
                "copy the node's file from the controller's home again (HOME/join/NAME)",
            )
        host = match["host"].removeprefix("[").removesuffix("]")
        return JoinWord(host, int(match["port"]), match["print"], match["name"], match["secret"])


def secret_of(cluster_secret: bytes, name: str) -> str:
    """Returns the secret of a node: from that of one node no other can be computed."""
    return hmac.new(cluster_secret, name.encode("ascii"), hashlib.sha256).hexdigest()


def check_name(name: str, where: str) -> str:
    """Returns the name of a node. Raises InputError unless it is one."""
    if not NAME.fullmatch(name):
        raise InputError(where, f"{name[:80]!r} is no name of a node", "use its host name")
    return name
