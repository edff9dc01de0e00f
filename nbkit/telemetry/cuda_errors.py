"""What CUDA's errors mean and what to do about them.

CUDA itself tells the error's number and name; what to do is not in it.

References
----------
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html (cudaError)
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CudaAdvice:
    """What an error of CUDA means, and what to do now."""

    text: str
    """One sentence without a full stop."""
    may_pass: bool = False
    """Whether a new attempt on the same GPU may succeed."""


_LOST = (
    "a GPU has stopped answering; look for an Xid message (sudo dmesg | grep Xid), "
    "then reset the GPU (nvidia-smi --gpu-reset -i INDEX) or reboot"
)

_TABLE: tuple[tuple[str, CudaAdvice], ...] = (
    (
        r"system not yet initialized|\berror 802\b",
        CudaAdvice(
            "the fabric manager has not connected the NVSwitches of this machine; see "
            "systemctl status nvidia-fabricmanager, install the fabric manager of the "
            "driver's own version and start it (systemctl start nvidia-fabricmanager)"
        ),
    ),
    (
        r"driver on your system is too old|driver version is insufficient|\berror 35\b",
        CudaAdvice(
            "update the driver, or install an older torch built for the driver's CUDA"
        ),
    ),
    (
        r"unsupported display driver / cuda driver combination|\berror 803\b",
        CudaAdvice(
            "libcuda.so and the driver's kernel module are of different versions; "
            "reboot after an update of the driver, and in a container remove "
            "cuda-compat from LD_LIBRARY_PATH"
        ),
    ),
    (
        r"forward compatibility was attempted on non supported HW|\berror 804\b",
        CudaAdvice(
            "cuda-compat serves data center GPUs only; remove it from LD_LIBRARY_PATH, "
            "and update the driver"
        ),
    ),
    (
        r"No CUDA GPUs are available|no CUDA-capable device|\berror 100\b",
        CudaAdvice(
            "CUDA_VISIBLE_DEVICES names no GPU of this machine, or the GPU is lost; "
            "compare it with nvidia-smi -L, correct or unset it"
        ),
    ),
    (
        r"invalid device ordinal|\berror 101\b",
        CudaAdvice(
            "a GPU of this number does not exist here; compare CUDA_VISIBLE_DEVICES "
            "with nvidia-smi -L, correct or unset it"
        ),
    ),
    (
        r"busy or unavailable|\berror 46\b",
        CudaAdvice(
            "another process has this GPU for itself; see nvidia-smi and its compute "
            "mode (nvidia-smi -q -d COMPUTE), and set it back with nvidia-smi -c 0",
            may_pass=True,
        ),
    ),
    (
        r"uncorrectable ECC error|cudaErrorECCUncorrectable",
        CudaAdvice(
            "the GPU's memory is damaged; see nvidia-smi -q -d ECC,ROW_REMAPPER and "
            "reset the GPU (nvidia-smi --gpu-reset -i INDEX) to remap the row",
            may_pass=True,
        ),
    ),
    (
        r"uncorrectable NVLink error|peer GPU memory over nvlink",
        CudaAdvice(
            "an NVLink or the GPU at its other end fails; see nvidia-smi nvlink -e and "
            "the Xid in dmesg, and reset the GPUs",
            may_pass=True,
        ),
    ),
    (
        r"GPU is lost|fallen off the bus|GPU_IS_LOST|cudaErrorDeviceUnavailable",
        CudaAdvice(_LOST),
    ),
    (
        r"unspecified launch failure",
        CudaAdvice(
            f"{_LOST}; without an Xid of the GPU itself, a kernel of the program is "
            "wrong: start it with CUDA_LAUNCH_BLOCKING=1",
            may_pass=True,
        ),
    ),
    (
        r"MPS (client|server)|CUDA_ERROR_MPS",
        CudaAdvice(
            "the MPS daemon does not answer; start it (nvidia-cuda-mps-control -d), or "
            "unset CUDA_MPS_PIPE_DIRECTORY"
        ),
    ),
    (
        r"Found no NVIDIA driver",
        CudaAdvice(
            "the driver is not loaded; run nvidia-smi or modprobe nvidia as root, and "
            "start a container with --gpus all"
        ),
    ),
    (
        r"CUDA driver initialization failed|error 3: initialization error",
        CudaAdvice(
            "the driver cannot be initialised; run nvidia-smi, and look for an Xid "
            "message (sudo dmesg | grep Xid)"
        ),
    ),
    (
        r"CUDA (error: )?unknown error|\berror 999\b",
        CudaAdvice(
            "run nvidia-smi and look for an Xid message (sudo dmesg | grep Xid); after "
            "a suspend reload the module: sudo modprobe -r nvidia_uvm, then sudo "
            "modprobe nvidia_uvm",
            may_pass=True,
        ),
    ),
    (
        r"no kernel image is available",
        CudaAdvice(
            "a library has no code for this GPU; install a build of it for the GPU's "
            "compute capability (nvidia-smi --query-gpu=name,compute_cap --format=csv)"
        ),
    ),
)


_HINTS = re.compile(r"Did you run some cuda functions .*?\? | Please .*$")


def cuda_advice(message: str) -> CudaAdvice | None:
    """Return what an error of CUDA, torch or NVML means; None if not a GPU's fault."""
    for pattern, advice in _TABLE:
        if re.search(pattern, message, re.IGNORECASE):
            return advice
    return None


_OUT_OF_MEMORY = (
    "out of memory",
    "alloc_failed",
    "unable to find an engine to execute",
)


def is_out_of_memory(message: str) -> bool:
    """Return whether CUDA, cuBLAS, cuDNN or NCCL say that the GPU's memory is full.

    Outside its own allocator torch passes on what they say. Where cuDNN tries its
    plans out, those that get no workspace are passed over until none is left.
    """
    said = message.lower()
    return any(words in said for words in _OUT_OF_MEMORY)


def first_line(message: str) -> str:
    """Return what an error says, without the general hints that torch adds to it."""
    line = message.strip().partition("\n")[0]
    return _HINTS.sub("", line).strip().rstrip(".;")
