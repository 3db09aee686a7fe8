import pytest

from accelerate.launching.hosts import Host, expand_nodes, parse_hosts


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-2]", ["n1", "n2"]),
        ("node[01-03,7],login", ["node01", "node02", "node03", "node7", "login"]),
        ("a[9-11]", ["a9", "a10", "a11"]),
        ("r[1-2]n[01-02]", ["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("gpu[1,3]-ib,x[08-10].cluster", ["gpu1-ib", "gpu3-ib", "x08.cluster", "x09.cluster", "x10.cluster"]),
    ],
)
def test_nodes_of_slurm(text: str, names: list[str]) -> None:
    assert expand_nodes(text) == names


def test_host_files() -> None:
    text = "# machines\nnode1 slots=4 max_slots=8\nnode2:2   # slow\n\nnode3\n10.0.0.4\nfe80::1\n"
    assert parse_hosts(text) == [
        Host(name="node1", slots=4),
        Host(name="node2", slots=2),
        Host(name="node3"),
        Host(name="10.0.0.4"),
        Host(name="fe80::1"),
    ]
