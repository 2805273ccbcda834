"""Chosen ports are different, free, and not among those that the kernel gives out."""

import socket

from hami_dra.lab.ports import LOOPBACK, free_port, free_ports


def test_ports_are_different_and_below_the_kernels_own() -> None:
    ports = free_ports(50)

    assert len(set(ports)) == 50
    assert all(20000 <= port < 30000 for port in ports)


def test_a_port_in_use_is_not_chosen() -> None:
    [taken] = free_ports(1)
    with socket.create_server((LOOPBACK, taken)):
        assert taken not in free_ports(9_900)


def test_the_wanted_port_is_taken_if_it_is_free() -> None:
    [wanted] = free_ports(1)

    assert free_port(wanted) == wanted
    with socket.create_server((LOOPBACK, wanted)):
        assert free_port(wanted) != wanted
