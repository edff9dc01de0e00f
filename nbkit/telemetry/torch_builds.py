"""torch and DALI builds of the package index, by driver and GPUs.

``.ci/setup`` runs this file before anything is installed, with any Python 3.11: it
needs the standard library alone (``python -I nbkit/telemetry/torch_builds.py``).
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

Capability = tuple[int, int]


@dataclass(frozen=True)
class TorchBuild:
    """Build targets of torch's default Linux wheels, up to some version."""

    below: str | None
    """First torch version with another build; None for the newest."""
    cuda: str
    """CUDA of the first wheel of the row: later ones have the same major version."""
    driver: int
    """Oldest driver branch for any minor version of that CUDA."""
    capability: Capability
    """Oldest compute capability with kernels in the wheel."""
    on_arm: bool
    """Whether the aarch64 wheels are built with CUDA too."""

    @property
    def requirement(self) -> str:
        """Requirement for pip: ``torch<2.11``, or ``torch`` for the newest."""
        return f"torch<{self.below}" if self.below else "torch"

    @property
    def dali(self) -> str:
        """Extra of nbkit with DALI for the same CUDA version."""
        return "dali" if self.cuda.startswith("12.") else "dali13"


TORCH_BUILDS = (
    TorchBuild(None, "13.0", 580, (7, 5), on_arm=True),
    TorchBuild("2.11", "12.8", 525, (7, 0), on_arm=False),
    TorchBuild("2.8", "12.6", 525, (5, 0), on_arm=False),
)
"""The newest first, from nbkit's oldest torch on.

References
----------
CUDA: what each wheel requires (``nvidia-cuda-runtime-cu12==12.8.90``,
``cuda-toolkit==13.0.2``); compute capabilities: `torch.cuda.get_arch_list`; drivers:
https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
"""

_SMI_SECONDS = 60.0
"""Eight GPUs without persistence mode take up to half of it."""


def covers(architectures: Sequence[str], capability: Capability) -> bool:
    """Return whether a build of torch has code for a GPU."""
    # Code for ``sm_XY`` runs on the same X and Y or a later one; ``compute_XY`` is
    # compiled by the driver for any later GPU. With the suffix ``a`` (``sm_90a``)
    # either is for that GPU alone, with ``f`` for the same X and Y or a later one.
    # https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility
    # https://developer.nvidia.com/blog/nvidia-blackwell-and-nvidia-cuda-12-9-introduce-family-specific-architecture-features
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([a-z]?)", name)
        if match is None:
            continue
        built = int(match[2]), int(match[3])
        same_major = built[0] == capability[0]
        if match[4] == "a":
            runs = built == capability
        elif match[1] == "sm" or match[4]:
            runs = same_major and built <= capability
        else:
            runs = built <= capability
        if runs:
            return True
    return False


def last_torch(
    capabilities: Sequence[Capability],
    branch: int | None = None,
    machine: str | None = None,
) -> TorchBuild | None:
    """Return the newest wheels that run on some GPUs; None if none do."""
    on_arm = (machine or platform.machine()) == "aarch64"
    for build in TORCH_BUILDS:
        if on_arm and not build.on_arm:
            continue
        if any(capability < build.capability for capability in capabilities):
            continue
        if branch is None or branch >= build.driver:
            return build
    return None


def needed_branch(
    capabilities: Sequence[Capability], machine: str | None = None
) -> int | None:
    """Return the oldest branch of the driver with which some wheel runs on the GPUs."""
    branches = [build.driver for build in TORCH_BUILDS]
    usable_branches = (
        branch
        for branch in sorted(branches)
        if last_torch(capabilities, branch, machine)
    )
    return next(usable_branches, None)


def read_driver() -> tuple[str, list[Capability]] | None:
    """Return the driver's version and what is known of its GPUs, from nvidia-smi."""
    # Drivers before 510 know of no compute_cap.
    for fields in ("driver_version,compute_cap", "driver_version"):
        rows = _ask_smi(fields)
        if rows:
            matches = [
                re.fullmatch(r"(\d+)\.(\d+)", row[-1]) for row in rows if row[1:]
            ]
            return rows[0][0], [
                (int(match[1]), int(match[2])) for match in matches if match
            ]
    return None


def _ask_smi(fields: str) -> list[list[str]]:
    """Return the fields of each GPU; none if nvidia-smi is silent."""
    argv = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SMI_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return (
        [] if done.returncode else [row for row in rows if re.match(r"\d+\.\d", row[0])]
    )


def main(locked: bool = False) -> int:
    """Print pip's requirement, the extra for DALI and why; nothing without a GPU."""
    # The lock has the DALI of CUDA 12, which any driver runs that runs a torch.
    driver = read_driver()
    if driver is None:
        return 0
    version, capabilities = driver
    build = last_torch(capabilities, int(version.partition(".")[0]))
    if build is None:
        branch = needed_branch(capabilities)
        remedy = (
            f"install driver {branch} or newer" if branch else "the GPUs are too old"
        )
        sys.stdout.write(f"no torch version supports driver {version}: {remedy}\n")
        return 1
    builds = f"{build.requirement} {'dali' if locked else build.dali}"
    sys.stdout.write(f"{builds}\ndriver {version} runs {builds}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(locked="--locked" in sys.argv[1:]))
