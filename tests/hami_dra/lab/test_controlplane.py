"""Each component is called so that two clusters can run side by side and nothing throttles."""

from pathlib import Path

import pytest

from hami_dra.lab import controlplane
from hami_dra.lab.controlplane import Ports, feature_gates
from hami_dra.lab.failure import LabError
from hami_dra.lab.layout import Layout

LAYOUT = Layout(Path("/private"))
PORTS = Ports(api_server=20001, controller_manager=20002, scheduler=20003)

SERVERS = {
    "api_server": controlplane.api_server_arguments,
    "controller_manager": controlplane.controller_manager_arguments,
    "scheduler": controlplane.scheduler_arguments,
}


@pytest.mark.parametrize("version", ["1.36.3", "1.37.2", "1.38.0", "2.0.0"])
def test_a_current_version_needs_no_gate(version: str) -> None:
    assert feature_gates(version) == {}


@pytest.mark.parametrize("version", ["1.34.4", "1.35.4"])
def test_an_older_version_needs_the_gate_everywhere(version: str) -> None:
    """An API server without it silently drops the fields; a scheduler refuses the claim."""
    assert feature_gates(version) == {"DRAConsumableCapacity": True}
    for arguments in SERVERS.values():
        assert "--feature-gates=DRAConsumableCapacity=true" in arguments(LAYOUT, PORTS, version)


def test_a_version_without_the_api_is_refused() -> None:
    with pytest.raises(LabError, match=r"Kubernetes 1\.33\.9: .* expected 1\.34 or later"):
        feature_gates("1.33.9")


@pytest.mark.parametrize("name", SERVERS)
def test_every_port_is_a_chosen_one_on_loopback(name: str) -> None:
    """A default port would be taken by the second cluster; another address would be public."""
    arguments = SERVERS[name](LAYOUT, PORTS, "1.37.2")

    assert f"--secure-port={getattr(PORTS, name)}" in arguments
    assert "--bind-address=127.0.0.1" in arguments


def test_etcd_listens_on_files_in_the_private_directory_only() -> None:
    arguments = controlplane.etcd_arguments(LAYOUT)
    urls = [argument for argument in arguments if argument.startswith("--listen-")]

    assert len(urls) == 2
    assert all("=unix:///private/etcd" in url for url in urls)


def test_the_api_server_guards_like_a_real_one() -> None:
    arguments = controlplane.api_server_arguments(LAYOUT, PORTS, "1.37.2")

    assert "--authorization-mode=Node,RBAC" in arguments
    assert "--enable-admission-plugins=NodeRestriction" in arguments
    assert "--endpoint-reconciler-type=none" in arguments


def test_fake_nodes_are_left_alone() -> None:
    arguments = controlplane.controller_manager_arguments(LAYOUT, PORTS, "1.37.2")

    assert "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller" in arguments


def test_the_clients_limits_are_raised() -> None:
    """The stock ones cap pods with a claim template at 11 a second."""
    arguments = controlplane.controller_manager_arguments(LAYOUT, PORTS, "1.37.2")
    connection = controlplane.scheduler_config(LAYOUT)["clientConnection"]

    assert {"--kube-api-qps=200", "--kube-api-burst=400"} <= set(arguments)
    assert (connection["qps"], connection["burst"]) == (200, 400)


def test_a_directory_too_long_for_a_socket_is_refused() -> None:
    with pytest.raises(LabError, match="expected at most 107 for a socket; choose a shorter"):
        controlplane.etcd_arguments(Layout(Path("/") / ("x" * 100)))


def test_the_audit_log_is_written_before_the_server_goes_on() -> None:
    """Whoever reads it after an answer must find the request in it."""
    arguments = controlplane.audit_arguments(LAYOUT)

    assert "--audit-log-mode=blocking" in arguments
    assert "--audit-log-path=/private/logs/audit.jsonl" in arguments
