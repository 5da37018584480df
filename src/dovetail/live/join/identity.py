"""Who a controller is to its nodes: a certificate of its own, and the secret of its cluster.

Both are made once for a home and kept there. Nobody signs the certificate: join words have its
fingerprint, so there is no authority to set up, and none that could be fooled.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dovetail.core.errors import InputError
from dovetail.files.whole_file import PRIVATE, write_whole
from dovetail.live.join.word import secret_of
from dovetail.live.system.private_file import make_private_folder

SECRET_BYTES = 32
LIFE = timedelta(days=36_500)
"""Nobody checks the date: the fingerprint decides."""


@dataclass(frozen=True)
class ControllerIdentity:
    """The files of the certificate and its key, its fingerprint, and the cluster's secret."""

    certificate: Path
    key: Path
    fingerprint: str
    secret: bytes

    def secret_of(self, name: str) -> str:
        """Returns the secret of a node."""
        return secret_of(self.secret, name)

    def tls(self) -> ssl.SSLContext:
        """Returns the settings of connections that come in: TLS 1.3 and no older."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # A ticket would come in as bytes that nobody asked for; connections are long.
        context.num_tickets = 0
        context.load_cert_chain(self.certificate, self.key)
        return context

    @staticmethod
    def of(folder: Path) -> ControllerIdentity:
        """Returns the identity in a folder, made if it is not there. Raises InputError."""
        make_private_folder(folder)
        certificate, key, secret = folder / "cert.pem", folder / "key.pem", folder / "secret"
        if not (certificate.exists() and key.exists()):
            _make_certificate(certificate, key)
        if not secret.exists():
            write_whole(secret, secrets.token_hex(SECRET_BYTES), mode=PRIVATE)
        try:
            der = ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))
            known = bytes.fromhex(secret.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise InputError(
                str(folder),
                f"the certificate or the secret cannot be read: {error}",
                "put back a copy, or remove the folder: nodes then need new join words",
            ) from None
        if len(known) < SECRET_BYTES:
            raise InputError(str(secret), "it is too short", "put back a copy, or remove it")
        return ControllerIdentity(certificate, key, hashlib.sha256(der).hexdigest(), known)


def _make_certificate(certificate: Path, key: Path) -> None:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise InputError(
            "--engine",
            "nodes of other machines need the package 'cryptography'",
            "pip install 'dovetail[cluster]'",
        ) from None
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"dovetail-{os.getpid()}")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + LIFE)
        .sign(private, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_whole(key, private.private_bytes(pem, *plain).decode("ascii"), mode=PRIVATE)
    write_whole(certificate, signed.public_bytes(pem).decode("ascii"), mode=PRIVATE)
