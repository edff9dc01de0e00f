"""What deterministic=True needs of a rank's environment."""

from __future__ import annotations

import pytest

from nbkit.config.determinism import DETERMINISTIC_VARIABLES, variables_against


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, None),
        (DETERMINISTIC_VARIABLES, None),
        ({"NCCL_ALGO": "Tree", "NCCL_NVLS_ENABLE": "0"}, None),
        ({"NCCL_ALGO": "^NVLS,NVLSTree", "NCCL_COLLNET_ENABLE": "0"}, None),
        ({"NCCL_ALGO": "allreduce:tree;broadcast:ring"}, None),
        ({"NCCL_NVLS_ENABLE": "1"}, "with NCCL_NVLS_ENABLE=1: reductions in sw"),
        ({"NCCL_ALGO": "Ring,NVLS"}, "with NCCL_ALGO=Ring,NVLS: reductions in sw"),
        ({"NCCL_ALGO": "allreduce:collnetdirect"}, "Unset it, or set determ"),
        (
            {"NCCL_NVLS_ENABLE": "2", "NCCL_COLLNET_ENABLE": "1"},
            "NCCL_NVLS_ENABLE=2 and NCCL_COLLNET_ENABLE=1: reductions in switches "
            "(NVLink SHARP, CollNet) sum gradients in a varying order. Unset them",
        ),
    ],
)
def test_variables_against(environment, words):
    problem = variables_against(environment)

    assert problem is None if words is None else words in problem
