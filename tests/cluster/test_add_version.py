"""The module file of another version starts from what Kubernetes' own says."""

from hami_dra.lab import modules
from tests.cluster.add_version import module_file

UPSTREAM = """\
module k8s.io/kubernetes

go 1.25.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_staging_modules_and_language_are_those_of_the_release() -> None:
    written = module_file("1.35.4", UPSTREAM)

    assert "\ngo 1.25.0\n" in written
    assert "\nrequire k8s.io/kubernetes v1.35.4\n" in written
    replaced = [line.strip() for line in written.splitlines() if "=>" in line]
    assert replaced == [
        "k8s.io/api => k8s.io/api v0.35.4",
        "k8s.io/kubelet => k8s.io/kubelet v0.35.4",
    ]


def test_each_version_of_the_checkout_has_its_checksums() -> None:
    found = modules.available(modules.source_directory())

    assert {"1.34", "1.35", "1.36", "1.37"} <= {modules.minor(module.version) for module in found}
    assert all(module.checksums.is_file() for module in found)
