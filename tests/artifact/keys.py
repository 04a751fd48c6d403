"""Keys that sign bundles."""

from __future__ import annotations

from pathlib import Path


def make_key(path: Path) -> Path:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(*pem))
    return path
