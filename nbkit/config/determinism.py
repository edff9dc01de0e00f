"""Requirements of ``deterministic=True`` on GPUs, beside torch's switch."""

from __future__ import annotations

from collections.abc import Mapping

DETERMINISTIC_VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "Ring",
    "NCCL_NVLS_ENABLE": "0",
}
"""Set for every rank before torch is loaded, unless they are set already.

cuBLAS is deterministic only with a fixed workspace:
https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility

NVLink SHARP adds in the switches, in an order that differs from call to call
(https://github.com/NVIDIA/nccl/issues/1497); rings add in one order, whatever the size
of a message:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-algo
"""

_IN_SWITCHES = ("nvls", "collnet")
"""Algorithms of NCCL that let switches add, in lower case."""

_POOLING = {"alexnet"} | {
    f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")
}
"""Models of torchvision that pool to more than one value per channel. To one value,
torch takes the mean, which is deterministic; else it has no deterministic gradient:
https://docs.pytorch.org/docs/stable/generated/torch.use_deterministic_algorithms.html"""


def not_deterministic(model: str) -> str | None:
    """Return why a model cannot train deterministically on a GPU; None if it can."""
    if model not in _POOLING:
        return None
    return (
        f"The backward pass of adaptive average pooling in {model} is not "
        "deterministic on GPUs. Use deterministic=False, device='cpu' or another "
        "model, such as 'resnet50'"
    )


def variables_against(environment: Mapping[str, str]) -> str | None:
    """Return which variables contradict ``deterministic=True``; None if none does."""
    wrong = [
        f"{name}={value}"
        for name, needed in (("NCCL_NVLS_ENABLE", "0"), ("NCCL_COLLNET_ENABLE", "0"))
        if (value := environment.get(name, needed)).strip() != needed
    ]
    algorithms = environment.get("NCCL_ALGO", "")
    if _names_switches(algorithms):
        wrong.append(f"NCCL_ALGO={algorithms}")
    if not wrong:
        return None
    return (
        f"deterministic=True conflicts with {' and '.join(wrong)}: reductions in "
        "switches (NVLink SHARP, CollNet) sum gradients in a varying order. Unset "
        f"{'it' if len(wrong) == 1 else 'them'}, or set deterministic=False."
    )


def _names_switches(algorithms: str) -> bool:
    """Return whether a value of NCCL_ALGO allows a sum in switches by its name.

    Such as ``Ring``, ``^NVLS`` or ``allreduce:tree,collnetdirect;broadcast:ring``.
    """
    lists = [part.rpartition(":")[2].strip() for part in algorithms.lower().split(";")]
    return any(
        name in listed
        for listed in lists
        for name in _IN_SWITCHES
        if not listed.startswith("^")
    )
