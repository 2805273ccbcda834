"""Prune shows first, deletes when told to, and says why what stays does."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
import typer
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.duration import duration
from hami_dra.cli.table import table
from hami_dra.migration import Json
from tests.hami_dra.kube.api_double import API, ApiDouble
from tests.hami_dra.kube.test_sweeper import DELETE, KIND, user
from tests.hami_dra.kube.test_unused import template


class Cluster:
    """A double that serves in a thread of its own, since the command has an event loop too."""

    def __init__(self, directory: Path) -> None:
        self.double = ApiDouble()
        self.kubeconfig = directory / "kubeconfig"
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        async with self.double.serving() as api:
            api.write_kubeconfig(self.kubeconfig)
            self._up.set()
            await self._end.wait()

    def put(self, kind: str, item: Json) -> None:
        """Store an object."""
        asyncio.run_coroutine_threadsafe(self.double.put(kind, item), self._loop).result(10)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as running:
        yield running


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hami_dra.cli.pruning._LATER_LOOKS_S", (0.0,))


def prune(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["prune", "--kubeconfig", str(cluster.kubeconfig), *arguments])


def test_what_can_go_is_shown_and_nothing_is_written(cluster: Cluster) -> None:
    cluster.put(KIND, template())
    cluster.put(KIND, template(name="used", creationTimestamp="2026-01-01T00:00:00Z"))
    cluster.put("pods", user(name="used"))
    cluster.put(KIND, template(name="theirs", managedFields=[{"manager": "flux"}]))

    result = prune(cluster)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [line.rstrip() for line in result.stdout.splitlines()]
    rows = {line.split()[1]: line for line in result.stdout.splitlines()}
    assert "2026-01-01T00:00:00Z   unused" in rows["hami-1x8192mi-0c-0123456789"]
    assert "stays     used by Pod/w" in rows["used"]
    assert "stays     flux wrote it" in rows["theirs"]
    assert "nothing was deleted; 1 of 3 templates can go, repeat with --yes" in result.stderr
    assert all(call.startswith("GET") for call in cluster.double.calls)


def test_what_can_go_goes_when_told_to(cluster: Cluster) -> None:
    cluster.put(KIND, template())
    cluster.put(KIND, template(namespace="other"))

    result = prune(cluster, "-n", "team", "--yes")

    assert "deleted 1 of 1 templates" in result.stderr
    assert cluster.double.count(DELETE) == 1
    assert cluster.double.found(KIND, "other", template()["metadata"]["name"])


def test_a_template_that_is_needed_after_all_is_put_back(cluster: Cluster) -> None:
    cluster.put(KIND, template())
    cluster.double.before[DELETE] = lambda: cluster.double.put("pods", user())

    result = prune(cluster, "--yes", "-o", "json")

    [line] = json.loads(result.stdout)
    assert line["outcome"] == "put back"
    assert "while it was being deleted" in line["reason"]


def test_what_changed_meanwhile_stays_and_what_was_refused_is_told(cluster: Cluster) -> None:
    cluster.put(KIND, template())
    cluster.double.before[DELETE] = lambda: cluster.double.put(KIND, template(labels={}))
    overtaken = prune(cluster, "--yes")
    cluster.put(KIND, template())
    cluster.double.fail(DELETE, 403)
    refused = prune(cluster, "--yes")

    assert "somebody changed it meanwhile" in overtaken.stdout
    assert overtaken.exit_code == 0
    assert "the API server refused or did not answer" in refused.stdout
    assert refused.exit_code == 3


def test_a_refused_read_ends_the_command_before_anything_is_deleted(cluster: Cluster) -> None:
    cluster.put(KIND, template())
    cluster.double.fail("GET /apis/batch/v1/namespaces/team/cronjobs", 403)

    result = prune(cluster, "--yes")

    assert result.exit_code == 1
    assert "cluster: 403" in result.stderr
    assert not any(call.startswith("DELETE") for call in cluster.double.calls)


def test_an_empty_cluster_has_nothing_to_show(cluster: Cluster) -> None:
    result = prune(cluster)

    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(prune(cluster, "-o", "json").stdout) == []
    assert cluster.double.calls[0] == f"GET {API}/{KIND}"


@pytest.mark.parametrize(
    "arguments", [("-n", "a", "-A"), ("--yes", "--dry-run"), ("--older-than", "soon")]
)
def test_contradictions_are_usage_errors(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    result = prune(cluster, *arguments)

    assert result.exit_code == 2
    assert "expected" in result.stderr
    assert cluster.double.calls == []


def test_spans_are_read_as_people_write_them() -> None:
    assert duration("7d") == timedelta(days=7)
    assert duration("1w2d3h4m5s") == timedelta(days=9, hours=3, minutes=4, seconds=5)
    for wrong in ("", "7", "d", "-1d", "7 d", "1.5h", "\u0667d"):
        with pytest.raises(typer.BadParameter, match="such as 7d"):
            duration(wrong)
    with pytest.raises(typer.BadParameter, match="at most 999999999d"):
        duration("999999999w")


def test_columns_are_aligned_without_trailing_space() -> None:
    assert table([("A", "B"), ("long", "x"), ("y", "")]) == "A      B\nlong   x\ny\n"
