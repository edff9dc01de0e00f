"""The slot's modules lie side by side, as they do where it is carried to."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from checks import SIZES, Slot

MACHINE = {
    "gpus": [{"name": "NVIDIA H200", "uuid": "GPU-1"}],
    "driver": "580.159.04",
    "torch": "2.11.0",
    "cuda": "13.0",
    "precision": "bf16",
    "python": "3.12.3",
}


@pytest.fixture
def slot(tmp_path):
    """A slot of small size on a machine with one GPU."""
    return Slot(SIZES["small"], tmp_path, MACHINE)
