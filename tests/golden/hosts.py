"""Machines that do not exist, as records describe them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from nbkit.telemetry.sample import GpuDevice

__all__ = ["A100_NODE", "CPU_HOST", "H100_NODE", "Host"]

PACKAGES = {
    "nbkit": "0.1.0",
    "torch": "2.8.0",
    "torchvision": "0.23.0",
    "numpy": "2.3.2",
    "pillow": "11.3.0",
    "nvidia-dali-cuda120": "1.51.2",
    "nvidia-dali-cuda130": None,
    "nvidia-nvimgcodec-cu12": "0.6.0.32",
    "nvidia-nvimgcodec-cu13": None,
}


@dataclass(frozen=True)
class Host:
    """One machine."""

    name: str
    cpu_model: str
    cpus: int
    memory_bytes: int
    gpus: int = 0
    gpu: str | None = None
    """What the driver calls the GPUs; None without any."""
    gpu_bytes: int = 0
    capability: tuple[int, int] = (0, 0)
    power_limit_watts: float = 0.0
    sm_clock_max_mhz: int = 0
    driver: str = "570.133.20"

    @property
    def devices(self) -> list[GpuDevice]:
        """The GPUs, as the sampler describes them."""
        return [
            GpuDevice(
                index=index,
                uuid=self.uuid(index),
                name=self.gpu,
                memory_total_bytes=self.gpu_bytes,
                compute_capability="{}.{}".format(*self.capability),
                power_limit_watts=self.power_limit_watts,
                sm_clock_max_mhz=self.sm_clock_max_mhz,
                memory_clock_max_mhz=1_593,
                pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
                pcie_generation=4,
                pcie_width=16,
                nvlink_links=12,
                nvlink_version="3.0",
                nvlink_megabytes_per_second=26_562,
                mig_enabled=False,
                virtualization="none",
                persistence_mode=True,
                numa_node=None,
            )
            for index in range(self.gpus)
        ]

    def uuid(self, index: int) -> str:
        """Return what tells a GPU from every other."""
        return f"GPU-{self.name}-{index}"

    def rank_device(self, rank: int) -> dict[str, Any]:
        """Return on what a rank computes, as its worker says."""
        if self.gpu is None:
            return {"name": self.cpu_model, "uuid": None}
        return {
            "name": self.gpu,
            "uuid": self.uuid(rank % self.gpus),
            "compute_capability": list(self.capability),
            "memory_total_bytes": self.gpu_bytes,
        }

    @property
    def software(self) -> dict[str, Any]:
        """What a worker says of its libraries."""
        if self.gpu is None:
            no_gpu = dict.fromkeys(("cuda", "cudnn", "nccl", "cudnn_benchmark"))
            return {"backend": "gloo", "torch": "2.8.0+cu128", **no_gpu}
        return {
            "backend": "nccl",
            "torch": "2.8.0+cu128",
            "cuda": "12.8",
            "cudnn": 91_002,
            "nccl": "2.27.3",
            "cudnn_benchmark": True,
        }

    @property
    def machine(self) -> dict[str, Any]:
        """What a record says of the machine."""
        card = {"driver": "mlx5_core", "mtu": 9_000, "is_up": True, "numa_node": 0}
        return {
            "hostname": self.name,
            "system_product": "Written Server 1" if self.gpus else None,
            "container": None,
            "operating_system": "Ubuntu 24.04.2 LTS",
            "kernel": "6.8.0-60-generic",
            "architecture": "x86_64",
            "virtual_machine": not self.gpus,
            "hypervisor": None if self.gpus else "kvm",
            "cpu_model": self.cpu_model,
            "num_sockets": 1,
            "num_cores": self.cpus,
            "num_cpus": self.cpus,
            "usable_cpus": float(self.cpus),
            "num_numa_nodes": 1,
            "cpu_frequency_governor": "performance" if self.gpus else None,
            "memory_total_bytes": self.memory_bytes,
            "usable_memory_bytes": self.memory_bytes,
            "network_cards": [
                {"name": "eth0", "speed_megabits_per_second": 100_000, **card}
            ],
            "rdma_ports": [],
        }

    @property
    def links(self) -> dict[str, Any]:
        """Between which GPUs there is what; None without GPUs."""
        if not self.gpus:
            return {"topology": None, "p2p": None}

        def every(between: str) -> list[list[str]]:
            places = range(self.gpus)
            return [["X" if a == b else between for b in places] for a in places]

        ways = ("read", "write", "nvlink")
        return {"topology": every("NV12"), "p2p": dict.fromkeys(ways, every("OK"))}


A100_NODE = Host(
    name="a100-node",
    cpu_model="AMD EPYC 7763 64-Core Processor",
    cpus=64,
    memory_bytes=1 << 39,
    gpus=4,
    gpu="NVIDIA A100-SXM4-80GB",
    gpu_bytes=80 << 30,
    capability=(8, 0),
    power_limit_watts=400.0,
    sm_clock_max_mhz=1_410,
)
H100_NODE = replace(
    A100_NODE,
    name="h100-node",
    cpu_model="Intel(R) Xeon(R) Platinum 8480C",
    gpu="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    power_limit_watts=700.0,
    sm_clock_max_mhz=1_980,
    driver="575.57.08",
)
CPU_HOST = Host(
    name="cpu-host",
    cpu_model="AMD EPYC 7543 32-Core Processor",
    cpus=8,
    memory_bytes=32 << 30,
)
