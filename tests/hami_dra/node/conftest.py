"""The double of the API server, as the tests of `hami_dra.kube` have it."""

from tests.hami_dra.kube.conftest import api, session

__all__ = ["api", "session"]
