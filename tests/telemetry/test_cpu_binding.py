"""To which CPUs ranks are bound, on machines that are planted."""

from __future__ import annotations

import pytest

from nbkit.telemetry.cpu_binding import GpuNodes, choose, gpu_nodes
from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.topology import cpu_numbers, numa_node_of, read_cpus
from tests.telemetry.planted_topology import bus_id, plant, two_sockets_of_two_nodes


@pytest.fixture
def large(tmp_path):
    """Return a maker of the CPUs of two sockets with two NUMA nodes each."""
    root = two_sockets_of_two_nodes(tmp_path)
    return lambda usable=range(32): read_cpus(root, usable)


@pytest.fixture
def gpus(tmp_path, large):
    """Return where the eight GPUs of that machine are: two on a NUMA node."""
    return GpuNodes(tuple(numa_node_of(bus_id(gpu), tmp_path) for gpu in range(8)))


def bound(requested, cpus, ranks, gpus=None):
    return [choose(requested, cpus, rank, ranks, gpus) for rank in range(ranks)]


def cpu_sets(bindings):
    return [{*binding.cpus} for binding in bindings]


def test_unbound_ranks_have_all_cpus_and_say_where_these_are(large, gpus):
    one, other = bound("none", large(), 2)

    assert one == other
    assert one.cpus == tuple(range(32))
    assert (one.numa_nodes, one.sockets, one.shared_by) == ((0, 1, 2, 3), (0, 1), 2)
    assert one.reason is None


def test_by_numa_a_rank_has_all_cpus_of_the_node_of_its_gpu(large, gpus):
    found = bound("numa", large(), 8, gpus)

    assert [binding.numa_nodes for binding in found] == [
        *((node,) for node in (0, 0, 1, 1, 2, 2, 3, 3))
    ]
    assert found[5].cpus == tuple(cpu_numbers("8-11,24-27"))
    assert {binding.shared_by for binding in found} == {2}
    assert {binding.reason for binding in found} == {None}


def test_by_socket_a_rank_has_all_numa_nodes_of_the_socket_of_its_gpu(large, gpus):
    found = bound("socket", large(), 8, gpus)

    assert found[0].cpus == found[3].cpus == tuple(cpu_numbers("0-7,16-23"))
    assert found[4].cpus == found[7].cpus == tuple(cpu_numbers("8-15,24-31"))
    assert (found[7].numa_nodes, found[7].sockets) == ((2, 3), (1,))
    assert {binding.shared_by for binding in found} == {4}


def test_by_cores_each_has_whole_cores_of_its_own_on_the_node_of_its_gpu(large, gpus):
    found = bound("cores", large(), 8, gpus)

    assert [binding.cpus for binding in found[:3]] == [
        *((0, 1, 16, 17), (2, 3, 18, 19), (4, 5, 20, 21))
    ]
    assert len(set().union(*cpu_sets(found))) == 32
    assert [binding.numa_nodes for binding in found[4:6]] == [(2,), (2,)]
    assert {binding.reason for binding in found} == {None}


def test_ranks_go_where_their_gpus_are_in_whatever_order(large, gpus):
    swapped = GpuNodes((3, 0, 3))

    assert [binding.numa_nodes for binding in bound("numa", large(), 3, swapped)] == [
        *((3,), (0,), (3,))
    ]
    cores = bound("cores", large(), 3, swapped)
    assert [len(binding.cpus) for binding in cores] == [4, 4, 4], "equally many each"
    assert [binding.numa_nodes for binding in cores] == [(3,), (0,), (3,)]
    assert not {*cores[0].cpus} & {*cores[2].cpus}


def test_ranks_that_share_gpus_take_them_in_turn(large):
    found = bound("numa", large(), 4, GpuNodes((2, 1)))

    assert [binding.numa_nodes for binding in found] == [(2,), (1,), (2,), (1,)]


@pytest.mark.parametrize(
    ("requested", "ranks", "places"),
    [
        ("numa", 1, [0]),
        ("numa", 2, [0, 2]),
        ("numa", 4, [0, 1, 2, 3]),
        ("numa", 8, [0, 0, 1, 1, 2, 2, 3, 3]),
        ("socket", 2, [0, 1]),
        ("socket", 3, [0, 0, 1]),
        ("socket", 4, [0, 0, 1, 1]),
    ],
)
def test_on_cpus_ranks_are_dealt_out_in_blocks(large, requested, ranks, places):
    found = bound(requested, large(), ranks)

    units = "sockets" if requested == "socket" else "numa_nodes"
    assert [getattr(binding, units) for binding in found] == [(n,) for n in places]
    assert [binding.shared_by for binding in found] == [places.count(n) for n in places]
    assert {binding.reason for binding in found} == {None}


def test_on_cpus_a_node_that_has_few_usable_cpus_gets_no_rank(large):
    found = bound("numa", large([0, *range(8, 12), *range(24, 28)]), 2)

    assert [binding.numa_nodes for binding in found] == [(2,), (2,)]
    assert {binding.cpus for binding in found} == {tuple(cpu_numbers("8-11,24-27"))}


def test_on_cpus_cores_are_shared_out_equally_and_threads_stay_together(large):
    found = bound("cores", large(), 3)

    assert [len(binding.cpus) for binding in found] == [10, 10, 10]
    assert found[0].cpus == (0, 1, 2, 3, 4, 16, 17, 18, 19, 20)
    assert found[0].numa_nodes == (0, 1)


def test_with_more_ranks_than_cores_each_has_a_thread_and_then_shares_one(large):
    usable = [0, 1, 16, 17]

    few = "fewer cores than ranks, so ranks are bound to hardware threads"
    threads = bound("cores", large(usable), 4)
    assert cpu_sets(threads) == [{0}, {16}, {1}, {17}]
    assert {(one.shared_by, one.reason) for one in threads} == {(1, few)}
    crowded = bound("cores", large(usable), 6)
    assert cpu_sets(crowded) == [{0}, {16}, {1}, {17}, {0}, {16}]
    assert [binding.shared_by for binding in crowded] == [2, 2, 1, 1, 2, 2]
    assert {binding.reason for binding in crowded} == {few}


def test_only_cpus_that_may_be_used_count(large, gpus):
    usable = [1, 3, 17, 19, *range(12, 16)]

    found = bound("numa", large(usable), 8, gpus)

    assert found[0].cpus == (1, 3, 17, 19)
    assert found[7].cpus == (12, 13, 14, 15)
    assert found[2].cpus == tuple(sorted(usable))
    why = "NUMA node 1 of its GPU has no usable CPU"
    assert found[2].reason == why
    cores = bound("cores", large(usable), 8, gpus)
    assert len({binding.cpus for binding in cores}) == 8
    assert cores[0].reason == f"separate cores, but not near its GPU: {why}"


def test_a_rank_can_have_the_other_numa_node_of_its_socket(large, gpus):
    found = bound("socket", large([4, 5, 12]), 8, gpus)

    assert found[0].cpus == (4, 5), "its GPU is on NUMA node 0"
    assert found[7].cpus == (12,)


def test_cores_that_are_too_few_on_one_node_are_shared_out_from_all(large):
    found = bound("cores", large(), 6, GpuNodes((0,) * 5 + (1,)))

    assert [len(binding.cpus) for binding in found] == [4] * 6
    assert "a NUMA node has more ranks than cores" in found[5].reason


@pytest.mark.parametrize("node", [None, 7])
def test_a_gpu_of_no_known_node_leaves_its_rank_unbound_and_says_why(large, node):
    lost, other = bound("numa", large(), 2, GpuNodes((node, 3)))

    assert lost.cpus == tuple(range(32))
    assert lost.reason == (
        "the kernel does not report the NUMA node of its GPU"
        if node is None
        else "NUMA node 7 of its GPU has no CPU"
    )
    assert (other.numa_nodes, other.reason) == ((3,), None)


@pytest.mark.parametrize("node", [None, 0])
def test_one_numa_node_is_an_ordinary_machine(tmp_path, node):
    cpus = read_cpus(plant(tmp_path, [((0, 2), 0, 0), ((1, 3), 0, 0)]), range(4))

    for gpus in (None, GpuNodes((node,))):
        for requested, word in (("numa", "NUMA node"), ("socket", "socket")):
            binding = choose(requested, cpus, 0, 2, gpus)
            assert binding.cpus == (0, 1, 2, 3)
            assert (binding.numa_nodes, binding.sockets) == ((0,), (0,))
            assert binding.reason == f"this host has one {word}"
        cores = bound("cores", cpus, 2, gpus)
        assert [binding.cpus for binding in cores] == [(0, 2), (1, 3)]
        assert cores[0].reason is None


def test_an_affinity_within_one_node_binds_to_what_there_was_anyway(large):
    binding = choose("numa", large([8, 24]), 0, 1)

    assert binding.cpus == (8, 24)
    assert binding.reason == "all usable CPUs are on NUMA node 2"


@pytest.mark.parametrize("gpus", [None, GpuNodes((0,))])
def test_a_kernel_that_tells_nothing_leaves_ranks_unbound(tmp_path, gpus):
    cpus = read_cpus(tmp_path, {0, 1})

    binding = choose("numa", cpus, 0, 2, gpus)

    assert binding.cpus == (0, 1)
    assert (binding.numa_nodes, binding.sockets) == (None, None)
    assert binding.reason == "the kernel reports no NUMA nodes"
    assert cpu_sets(bound("cores", cpus, 2, gpus)) == [{0}, {1}]


def found_gpus(*nodes, **changes):
    return [
        GpuDevice(
            index=number,
            uuid=f"GPU-{number}{number}{number}{number}-x",
            name=changes.get("names", ["H100"] * len(nodes))[number],
            error=changes.get("errors", {}).get(number),
            numa_node=node,
        )
        for number, node in enumerate(nodes)
    ]


MIG = {"MIG-aaaa-1": "GPU-2222-x", "MIG-bbbb-2": "GPU-3333-x"}


@pytest.mark.parametrize(
    ("setting", "nodes"),
    [
        (None, (0, 0, 1, 1)),
        ("GPU-3333-x,GPU-0000-x", (1, 0)),
        ("2,1", (1, 0)),
        ("1,9,2", (0,)),
        ("MIG-aaaa-1", (1,)),
        ("MIG-aaaa-1,MIG-bbbb-2", (1,)),
    ],
)
def test_gpus_are_those_that_cuda_numbers(setting, nodes):
    found = gpu_nodes(found_gpus(0, 0, 1, 1), setting, MIG, None)

    assert found.by_number == nodes


def test_gpus_that_a_control_group_withholds_have_no_number():
    gpus = found_gpus(0, 0, 1, 1, errors={0: "no permission", 2: "no permission"})

    assert gpu_nodes(gpus, "0,1", {}, None).by_number == (0, 1)


def test_numbers_of_different_gpus_are_certain_in_bus_order_only():
    gpus = found_gpus(0, 1, names=["V100", "A100"])

    unsure = gpu_nodes(gpus, "0,1", {}, None)
    assert unsure.of(0) is None
    assert "CUDA_DEVICE_ORDER is not PCI_BUS_ID" in unsure.why_unknown
    assert gpu_nodes(gpus, "0,1", {}, "PCI_BUS_ID").by_number == (0, 1)
    assert gpu_nodes(gpus, "GPU-1111-x", {}, None).by_number == (1,)


def test_a_setting_that_names_no_gpu_is_a_reason():
    unknown = gpu_nodes(found_gpus(0), "GPU-none", {}, None)

    assert unknown.of(0) is None
    assert unknown.why_unknown == (
        "CUDA_VISIBLE_DEVICES=GPU-none lists no GPU of this host"
    )
