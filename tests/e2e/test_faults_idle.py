"""The API server keeps an idle connection for 90 s and then trusts it; so must we, for longer.

The connection is opened with the first cluster and this test runs last, so that it costs little.
"""

import pytest

from tests.e2e.idle import Idle

pytestmark = pytest.mark.cluster


def test_a_request_after_120_idle_seconds_finds_its_connection_open(idle: Idle) -> None:
    was_closed, answer = idle.result()

    assert not was_closed
    assert answer["allowed"]
