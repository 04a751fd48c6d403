"""Proofs that a bundle is the one that was made: an Ed25519 signature at its end, or its SHA-256.

The signature is the zip archive's comment: ``tflgpu-ed25519:`` and 128 hexadecimal digits. It is of the SHA-256 of all
bytes before these digits. To make or check one takes the package ``cryptography`` (the extra ``sign``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tflgpu.errors import BundleError, catching_panics, install_command

MARK = b"tflgpu-ed25519:"

DIGITS = 128  # of a signature

# Every signed message begins with this, so that a signature means nothing elsewhere.
PURPOSE = b"tflgpu bundle\0"


class Proof(NamedTuple):
    """Conditions on a bundle. key: an Ed25519 public key in hexadecimal. digests: one of these SHA-256, if any."""

    key: str | None = None
    digests: tuple[str, ...] = ()


def check_proof(content: bytes, proof: Proof) -> None:
    """Accept a bundle that is signed with the key, and pinned by one of the digests.

    Args:
        content: The whole bundle.
        proof: The user's public key and digests; either may be missing.

    Raises:
        BundleError: The signature or the digest is another one.
    """
    found = digest(content)
    if proof.digests and found not in proof.digests:
        raise BundleError(f"its SHA-256 is {found}, and not one of Options.cache_files.bundle_digest")
    if proof.key is None:
        return
    begin = len(content) - DIGITS
    digits = content[max(begin, 0) :]
    if content[max(begin - len(MARK), 0) : max(begin, 0)] != MARK:
        raise BundleError("it is not signed, and Options.cache_files.bundle_key asks for a signature")
    try:
        with catching_panics():
            _verify(bytes.fromhex(proof.key), digits, _message(content[:begin]))
    except BundleError:
        raise
    except (ValueError, RuntimeError) as error:
        raise BundleError("it is not what was signed with Options.cache_files.bundle_key") from error


def signer(key: Path) -> tuple[Callable[[bytes], bytes], str]:
    """Return a function that makes the digits for the bytes before them, and the public key in hexadecimal.

    Args:
        key: A file with an Ed25519 private key in PEM, without a password.

    Raises:
        ValueError: The file is something else.
        OSError: It cannot be read.
        BundleError: The package cryptography is not installed.
    """
    serialization, ed25519, _ = _cryptography()
    expected = f"{key} is no Ed25519 private key; `openssl genpkey -algorithm ed25519 -out {key}` makes one"
    try:
        with catching_panics():
            private = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, RuntimeError) as error:  # TypeError: it has a password
        raise ValueError(expected) from error
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ValueError(expected)
    public: bytes = private.public_key().public_bytes_raw()
    return lambda content: private.sign(_message(content)).hex().encode(), public.hex()


def digest(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal, as sha256sum prints it.

    Args:
        content: The whole bundle.
    """
    return hashlib.sha256(content).hexdigest()


def _message(content: bytes) -> bytes:
    return PURPOSE + hashlib.sha256(content).digest()


def _verify(key: bytes, digits: bytes, message: bytes) -> None:
    """Raise ValueError."""
    _, ed25519, invalid = _cryptography()
    signature = bytes.fromhex(digits.decode())
    if signature.hex().encode() != digits:
        raise ValueError("other digits of the same number")
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except invalid as error:
        raise ValueError("wrong signature") from error


def _cryptography() -> tuple[Any, Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise BundleError(
            f"signatures need the package cryptography; install it with {install_command('sign')}"
        ) from error
    return serialization, ed25519, InvalidSignature
