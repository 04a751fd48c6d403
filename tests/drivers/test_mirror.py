"""Where packages of Debian come from: where this machine's apt gets them."""

from __future__ import annotations

import pytest

from tests.drivers.debian import mirror


@pytest.mark.parametrize(
    "targets",
    [
        "http://other/repo stable Vendor Vendor\nhttp://mirror/debian bookworm Debian Debian\n",
        "http://mirror/debian trixie\nhttp://mirror/security trixie-security\n",
        "http://mirror/security trixie-security Debian Debian-Security\nhttp://mirror/debian trixie Debian Debian\n",
    ],
)
def test_the_mirror_is_that_of_apt(targets: str) -> None:
    assert mirror(targets) == "http://mirror/debian"


def test_a_machine_without_debian_is_told() -> None:
    with pytest.raises(LookupError, match="names no mirror of Debian"):
        mirror("http://mirror/ubuntu noble Ubuntu Ubuntu\n")
