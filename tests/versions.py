"""What older versions of Kubernetes lack, as the lab runs them: .github/VERSIONS.md for tests.

A test asks here what a version has, and shows what happens there otherwise.
"""

from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Kubernetes:
    """A version of Kubernetes, with its default gates and those that the product needs.

    Attributes:
        major: the first number.
        minor: the second one.
    """

    major: int
    minor: int

    def __str__(self) -> str:
        """Write it as flags have it, such as `1.37`."""
        return f"{self.major}.{self.minor}"

    @property
    def needs_no_gate(self) -> bool:
        """Tell whether all is there without a gate being switched on; preflight warns otherwise."""
        return self >= _1_36

    @property
    def keeps_taints(self) -> bool:
        """Tell whether a card that failed can be told from others."""
        return self >= _1_36

    @property
    def shows_health(self) -> bool:
        """Tell whether a pod's status says how its card is."""
        return self >= _1_36

    @property
    def lets_classes_stand_for_resources(self) -> bool:
        """Tell whether a DeviceClass may have an `extendedResourceName`."""
        return self >= _1_36

    @property
    def tells_cards_apart(self) -> bool:
        """Tell whether what is taken of a card leaves the node's other cards as they were."""
        return self >= _1_35


_1_35 = Kubernetes(1, 35)
_1_36 = Kubernetes(1, 36)


def of(version: str) -> Kubernetes:
    """Read a version such as `1.37.2`."""
    major, minor = version.split(".")[:2]
    return Kubernetes(int(major), int(minor))
