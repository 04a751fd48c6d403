"""Many entries in one read-only file: a zip archive without compression, and proofs of who made it.

The signature is the zip archive's comment: ``tflgpu-ed25519:`` and 128 hexadecimal digits. It is of the SHA-256 of all
bytes before these digits. To make or check one takes the package ``cryptography`` (the extra ``sign``).
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tflgpu.artifact.cache.directory import check_private, open_own
from tflgpu.artifact.cache.key import FORMAT_FOLDER, FORMAT_VERSION, NAME
from tflgpu.artifact.cache.payload import UnreadableError
from tflgpu.artifact.cache.store import Entry
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


_ALIGNMENT = 64

_PADDING_ID = 0xD935  # the extra field that Android's zipalign pads with

_LOCAL_HEADER = struct.Struct("<26xHH")  # 30 bytes; the last fields are the lengths of name and extra field


Sign = Callable[[bytes], bytes]


class Written(NamedTuple):
    """A bundle that was written: its bytes, and its SHA-256 in hexadecimal."""

    bytes: int
    digest: str


class Bundle:
    """An open bundle. A file that has to prove something is read into memory: what is proved is what is used.

    Raises OSError, UnreadableError if the file is not a bundle, BundleError if it does not prove what it has to, and
    CacheDirectoryError if another user can have written it.
    """

    def __init__(self, path: Path, proof: Proof | None = None) -> None:
        self.path = path
        check_private(path)
        with open(open_own(path), "rb") as file:
            try:
                if proof is None:
                    self._buffer = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                else:
                    content = file.read()
                    check_proof(content, proof)
                    self._buffer = memoryview(content)
                with zipfile.ZipFile(file if proof is None else io.BytesIO(content)) as archive:
                    members = archive.infolist()
            except BundleError as error:
                raise BundleError(f"the bundle {path} is refused: {error}") from error
            except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:  # ValueError: an empty file
                raise UnreadableError("damaged", f"is not a bundle: {error}") from error
        prefix = f"{FORMAT_FOLDER}/"
        names = {m.filename.removeprefix(prefix): m for m in members if m.filename.startswith(prefix)}
        self._members = {name: member for name, member in names.items() if NAME.fullmatch(name)}
        if members and not self._members:
            found = sorted({m.filename.partition("/")[0] for m in members})
            raise UnreadableError(
                "format", f"holds entries of format {', '.join(found)}, and this tflgpu reads v{FORMAT_VERSION}"
            )

    def open(self, name: str) -> memoryview | None:
        """Return the entry's bytes in the mapped bundle; None if it has no such entry.

        Args:
            name: The entry's path below the format's folder.

        Raises:
            UnreadableError: The bundle is damaged there.
        """
        member = self._members.get(name)
        if member is None:
            return None
        header = member.header_offset
        if not 0 <= header <= len(self._buffer) - _LOCAL_HEADER.size:
            raise UnreadableError("damaged", "lies outside of the bundle")
        begin = header + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack_from(self._buffer, header))
        return self._buffer[begin : begin + member.file_size]

    def mark_used(self, name: str) -> None:
        """Do nothing: a bundle is never written, and nothing is evicted from it.

        Args:
            name: The entry's path below the format's folder.
        """

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of their names."""
        for name, member in sorted(self._members.items()):
            yield Entry(self.path, name, member.file_size, 0.0)


def write_bundle(path: Path, entries: Mapping[str, mmap.mmap | memoryview], sign: Sign | None = None) -> Written:
    """Write entries as a bundle. Equal entries, with the same key, give equal bundles, byte by byte.

    Args:
        path: The file; it is replaced as a whole.
        entries: Content by name.
        sign: Makes the digits of a signature for the bytes before them; None to leave the bundle unsigned.

    Raises:
        OSError: The file cannot be written.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
    written = Path(name)
    try:
        with open(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for entry, data in sorted(entries.items()):
                member = zipfile.ZipInfo(f"{FORMAT_FOLDER}/{entry}")
                begin = file.tell() + _LOCAL_HEADER.size + len(member.filename) + 4
                padding = -begin % _ALIGNMENT
                member.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
                archive.writestr(member, data)
            if sign is not None:
                archive.comment = MARK + b"0" * DIGITS  # its place: the archive's directory has its length
        content = written.read_bytes()
        with open(written, "r+b") as finished:
            if sign is not None:
                content = content[:-DIGITS] + sign(content[:-DIGITS])
                finished.seek(-DIGITS, os.SEEK_END)
                finished.write(content[-DIGITS:])
            finished.flush()
            os.fsync(finished.fileno())
        written.chmod(0o644)  # every user can read it: a bundle is shipped with programs
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
    return Written(len(content), digest(content))
