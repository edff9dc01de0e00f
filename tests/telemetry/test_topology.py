"""Sockets, NUMA nodes and cores, as the kernel shows them: machines are planted."""

from __future__ import annotations

import os

import pytest

from nbkit.telemetry.topology import Cpu, cpu_numbers, numa_node_of, read_cpus
from tests.telemetry.planted_topology import bus_id, plant, two_sockets_of_two_nodes


def test_threads_of_a_core_stand_side_by_side_within_their_numa_node(tmp_path):
    cpus = read_cpus(two_sockets_of_two_nodes(tmp_path), range(32))

    assert [cpu.number for cpu in cpus[:10]] == [0, 16, 1, 17, 2, 18, 3, 19, 4, 20]
    assert cpus[9] == Cpu(20, "4,20", numa_node=1, socket=0, is_usable=True)
    assert [cpu.numa_node for cpu in cpus] == [cpu // 8 for cpu in range(32)]
    assert [cpu.socket for cpu in cpus] == [cpu // 16 for cpu in range(32)]


def test_a_cpu_that_may_not_be_used_has_its_place_all_the_same(tmp_path):
    cpus = read_cpus(two_sockets_of_two_nodes(tmp_path), {3, 19, 30})

    assert len(cpus) == 32
    assert [cpu.number for cpu in cpus if cpu.is_usable] == [3, 19, 30]


def test_numbers_may_have_holes_and_nodes_no_cpus(tmp_path):
    cores = [((7,), 1, 0), ((2,), 0, 0), ((40,), 1, 0)]

    cpus = read_cpus(plant(tmp_path, cores, empty_nodes=[4]), {2, 7, 40})

    assert [(cpu.number, cpu.numa_node) for cpu in cpus] == [(2, 0), (7, 1), (40, 1)]


def test_a_cpu_of_which_nothing_is_known_is_a_core_of_its_own(tmp_path):
    cpus = read_cpus(tmp_path, {5, 3})

    assert cpus == (Cpu(3, "3", None, None, True), Cpu(5, "5", None, None, True))


def test_a_firmware_without_sockets_says_so(tmp_path):
    [cpu] = read_cpus(plant(tmp_path, [((0,), 0, -1)]), {0})

    assert (cpu.numa_node, cpu.socket) == (0, None)


def test_this_machine_has_every_cpu_that_may_be_used():
    usable = {cpu.number for cpu in read_cpus() if cpu.is_usable}

    assert usable == os.sched_getaffinity(0)


def test_a_gpu_is_near_the_numa_node_of_its_slot(tmp_path):
    root = two_sockets_of_two_nodes(tmp_path)

    assert numa_node_of(f"0000{bus_id(5).upper()}", root) == 2


def test_a_firmware_that_places_no_gpu_leaves_it_unknown(tmp_path):
    root = plant(tmp_path, [((0,), 0, 0)], {bus_id(0): -1})

    for slot in (f"0000{bus_id(0)}", f"0000{bus_id(1)}", None):
        assert numa_node_of(slot, root) is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", []), ("\n", []), ("5", [5]), ("0-2,8,10-11\n", [0, 1, 2, 8, 10, 11])],
)
def test_lists_of_the_kernel_are_read(text, numbers):
    assert cpu_numbers(text) == numbers
