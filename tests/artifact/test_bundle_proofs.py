"""Bundles that are signed or pinned: with a byte changed anywhere they are refused, and nothing of them is used."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.artifact.cache.damage import KEY, flip, store
from tests.artifact.cache.entries import same
from tests.artifact.keys import make_key
from tflgpu.artifact.cache import Cache, pack
from tflgpu.artifact.cache.bundle import DIGITS, Proof, check_proof, signer
from tflgpu.errors import BundleError, CacheWarning
from tflgpu.options import CacheFiles

pytestmark = pytest.mark.usefixtures("fresh_warnings")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def signed(folder: Path, tmp_path: Path) -> tuple[Path, Proof, Proof]:
    """A signed bundle with one entry, the proof by its key, and the one by its digest."""
    store(Cache([folder]))
    sign, key = signer(make_key(tmp_path / "key.pem"))
    written = pack(Cache([folder]), tmp_path / "models.bundle", None, sign)
    return tmp_path / "models.bundle", Proof(key), Proof(None, ("0" * 64, written.digest))


def test_a_bundle_that_proves_itself_is_used(signed: tuple[Path, Proof, Proof], folder: Path) -> None:
    bundle, by_key, by_digest = signed
    for proof in (None, by_key, by_digest, Proof(by_key.key, by_digest.digests)):
        assert same(Cache([bundle], proof=proof).load(KEY), KEY)
        assert same(Cache([folder, bundle], proof=proof).load(KEY), KEY)
    assert by_digest.digests[1] == hashlib.sha256(bundle.read_bytes()).hexdigest()


def test_equal_entries_and_keys_make_equal_bundles(signed: tuple[Path, Proof, Proof], folder: Path) -> None:
    bundle, _, _ = signed
    sign, _ = signer(bundle.with_name("key.pem"))
    pack(Cache([folder]), bundle.with_name("again.bundle"), None, sign)
    assert bundle.with_name("again.bundle").read_bytes() == bundle.read_bytes()


def test_a_bit_that_is_changed_anywhere_is_seen(signed: tuple[Path, Proof, Proof]) -> None:
    """Some of the entry's bits, and every one of the archive's directory and the signature."""
    bundle, by_key, by_digest = signed
    good = bundle.read_bytes()
    end = 8 * len(good)
    places = [*random.Random(0).sample(range(end), 300), *range(end - 8 * (DIGITS + 100), end, 3)]
    changed = [flip(good, place) for place in places]
    changed += [good[:-1], good + b"\0", good[1:], b"", good * 2, good[:-DIGITS] + good[-DIGITS:].upper()]
    for data in changed:
        for proof in (by_key, by_digest):
            with pytest.raises(BundleError):
                check_proof(data, proof)
    for data in changed[:3]:
        bundle.write_bytes(data)
        with pytest.raises(BundleError, match=r"models\.bundle is refused"):
            Cache([bundle], proof=by_key)


def test_another_signature_or_none_is_refused(signed: tuple[Path, Proof, Proof], folder: Path) -> None:
    bundle, by_key, by_digest = signed
    other, _ = signer(make_key(bundle.with_name("other.pem")))
    pack(Cache([folder]), bundle, None, other)
    with pytest.raises(BundleError, match=r"not what was signed with Options\.cache_files\.bundle_key"):
        Cache([bundle], proof=by_key)
    with pytest.raises(BundleError, match=r"not one of Options\.cache_files\.bundle_digest"):
        Cache([bundle], proof=by_digest)
    pack(Cache([folder]), bundle)
    with pytest.raises(BundleError, match="is not signed"):
        Cache([bundle], proof=by_key)


def test_what_was_proved_is_what_is_used(signed: tuple[Path, Proof, Proof]) -> None:
    bundle, by_key, _ = signed
    cache = Cache([bundle], proof=by_key)
    bundle.write_bytes(b"")
    assert same(cache.load(KEY), KEY)


def test_a_proof_needs_a_bundle(signed: tuple[Path, Proof, Proof], folder: Path) -> None:
    _, by_key, _ = signed
    with pytest.raises(ValueError, match="its path names no bundle"):
        Cache([folder], proof=by_key)
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert Cache([folder / "gone.bundle"], proof=by_key).load(KEY) is None


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(ValueError, match=r"key\.pem is no Ed25519 private key"):
        signer(tmp_path / "key.pem")


def test_without_cryptography_the_error_says_what_to_install(signed: tuple[Path, Proof, Proof]) -> None:
    bundle, by_key, _ = signed
    script = """
import sys
sys.modules["cryptography"] = None
from pathlib import Path
from tflgpu.artifact.cache import Cache
from tflgpu.artifact.cache.bundle import Proof
try:
    Cache([Path(sys.argv[1])], proof=Proof(sys.argv[2]))
except Exception as error:
    print(error)
"""
    command = [sys.executable, "-c", script, str(bundle), str(by_key.key)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 'pip install "cryptography' in done.stdout


@pytest.mark.parametrize("name", ["bundle_key", "bundle_digest"])
@pytest.mark.parametrize("value", ["", "0" * 63, "g" * 64, b"0" * 64])
def test_options_for_proofs_are_checked(name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"Options\.cache_files\.{name}"):
        CacheFiles(**{name: value})  # type: ignore[arg-type]
    assert CacheFiles(bundle_digest="A" * 64).bundle_digest == ("a" * 64,)
