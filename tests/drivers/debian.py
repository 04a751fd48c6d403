"""OpenCL drivers of Debian releases, beside the system's: ``python -m tests.drivers.debian FOLDER [RELEASE...]``.

The script downloads packages with everything that they need, the C library included, and unpacks them below FOLDER. It
installs nothing. A process that is to use one of the drivers gets a mount namespace of its own, in which the unpacked
libraries lie over those of the system: drivers look for parts of theirs at absolute paths. ``TFLGPU_DRIVERS`` names the
folder to the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "TFLGPU_DRIVERS"
RUSTICL, POCL = "rusticl", "Portable Computing Language"
PACKAGES = {
    "bookworm": ("mesa-opencl-icd",),
    "trixie": ("mesa-opencl-icd", "pocl-opencl-icd"),
    "sid": ("mesa-opencl-icd", "pocl-opencl-icd"),
}
# Over /usr/lib and /usr/share; Debian 12 still has packages with libraries in /lib.
IN_NAMESPACE = """
set -e
root=$1; shift
mkdir -p "$root/lib"
mount -t overlay overlay -o "lowerdir=$root/lib:$root/usr/lib:/usr/lib" /usr/lib
mount -t overlay overlay -o "lowerdir=$root/usr/share:/usr/share" /usr/share
exec "$@"
"""


@dataclass(frozen=True)
class DebianDriver:
    """A driver of a Debian release, and the versions of it that the tests are known to pass on.

    Releases but the stable one change; a version that is not among these is tried by hand first.
    """

    release: str
    icd: str
    platform: str
    tried: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.icd}-{self.release}"

    def root(self, folder: Path) -> Path:
        return folder / self.release / "root"

    def is_in(self, folder: Path) -> bool:
        return self._icd(folder).exists()

    def _icd(self, folder: Path) -> Path:
        return self.root(folder) / "etc/OpenCL/vendors" / f"{self.icd}.icd"

    def run(self, folder: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command that sees the driver of ``folder``; if mounting is not allowed, that fails."""
        seeing, environment = self.seen_by(folder, command)
        return subprocess.run(seeing, env=environment, check=False, capture_output=True, text=True)

    def seen_by(self, folder: Path, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """The command and the environment with which it sees the driver of ``folder``."""
        vendors = folder / self.release / f"vendors-{self.icd}"
        vendors.mkdir(exist_ok=True)
        shutil.copy(self._icd(folder), vendors)
        environment = os.environ | {"OCL_ICD_VENDORS": f"{vendors}/", "RUSTICL_ENABLE": "llvmpipe"}
        return inside(self.root(folder), command), environment


def inside(root: Path, command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` with the unpacked libraries over those of the system."""
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    return [*namespace, "sh", "-c", IN_NAMESPACE, "sh", str(root.resolve()), *command]


DRIVERS = (
    DebianDriver("bookworm", "rusticl", RUSTICL, ("22.3",)),
    DebianDriver("trixie", "rusticl", RUSTICL, ("25.0",)),
    DebianDriver("trixie", "pocl", POCL, ("6.0",)),
    DebianDriver("sid", "rusticl", RUSTICL, ("26.2",)),
    DebianDriver("sid", "pocl", POCL, ("7.1",)),
)


def mirror(targets: str) -> str:
    """The address of Debian in the lines that apt prints of the packages' lists that this machine is configured for.

    targets: lines of an address, a release, an origin and a label. The last two are those of a list that was fetched;
    without it the release tells.

    Raises LookupError if no line is of Debian.
    """
    for address, release, *signed in map(str.split, targets.splitlines()):
        if signed == ["Debian", "Debian"] or (len(signed) < 2 and release in PACKAGES):
            return address
    raise LookupError("apt's configuration on this machine names no mirror of Debian")


def configured_mirror() -> str:
    """Raises LookupError, or OSError without apt."""
    wanted = "$(REPO_URI) $(RELEASE) $(ORIGIN) $(LABEL)"
    command = ["apt-get", "indextargets", "--format", wanted, "Identifier: Packages", "Component: main"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return mirror(listed.replace("$(ORIGIN)", "").replace("$(LABEL)", ""))


def fetch(release: str, packages: Sequence[str], folder: Path) -> None:
    """Download and unpack, from where this machine's apt gets Debian.

    Raises CalledProcessError if apt has no such packages, or does not know who signed them; LookupError if apt is not
    configured for Debian.
    """
    work, root = folder / release / "apt", folder / release / "root"
    for path in ("state/lists/partial", "cache/archives/partial"):
        (work / path).mkdir(parents=True, exist_ok=True)
    (work / "status").write_text("")  # as if nothing were installed, so that everything comes
    (work / "sources.list").write_text(f"deb {configured_mirror()} {release} main\n")
    settings = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Install-Recommends": "0",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "--download-only", "-y", "install", *packages], check=True)
    for package in sorted((work / "cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    shutil.rmtree(work)


def main() -> None:
    folder, *releases = sys.argv[1:]
    for release in releases or PACKAGES:
        try:
            fetch(release, PACKAGES[release], Path(folder))
        except (LookupError, OSError, subprocess.CalledProcessError) as error:
            print(f"The drivers of Debian's {release} could not be fetched: {error}")


if __name__ == "__main__":
    main()
