"""A claim whose unprepare never came is given up, but only when that is certain."""

from pathlib import Path

import pytest

from hami_dra.kube.errors import UnreachableError
from hami_dra.migration import Json
from hami_dra.node.reconciler import Reconciler
from hami_dra.node.record import Record
from tests.hami_dra.node.claims import Disk, claim, result

ALLOCATED = claim(result(1))
ELSEWHERE = claim(result(pool="n2"))


@pytest.mark.parametrize(
    ("answers", "given_up"),
    [
        ([None, None], True),
        ([{"status": {}}, {"status": {}}], True),
        ([ELSEWHERE, ELSEWHERE], True),
        ([ELSEWHERE, None], True),
        ([None, ALLOCATED], False),
        ([ELSEWHERE, ALLOCATED], False),
        ([ALLOCATED], False),
        (["away"], False),
        ([None, "away"], False),
    ],
)
async def test_it_takes_the_api_servers_word_twice(
    tmp_path: Path,
    answers: list[object],
    given_up: bool,  # noqa: FBT001 - a parameter
) -> None:
    disk = Disk(tmp_path)
    claims = disk.start()
    claims.prepare(claim(result()))
    left = iter(answers)

    async def find(_: Record) -> Json | None:
        answer = next(left)
        if answer == "away":
            raise UnreachableError("GET: refused")
        assert answer is None or isinstance(answer, dict)
        return answer

    found = await Reconciler(claims, find, confirm_s=0).once()

    assert found == (("ns/c",) if given_up else ())
    assert bool(claims.records()) is not given_up
    assert bool(disk.names()) is not given_up
    assert next(left, "none left") == "none left"


async def test_a_claim_that_was_prepared_anew_meanwhile_is_kept(tmp_path: Path) -> None:
    claims = Disk(tmp_path).start()
    uid = "11111111-2222-3333-4444-555555555555"
    claims.prepare(claim(result(), uid=uid))

    async def find(_: Record) -> Json | None:
        claims.prepare(claim(result(1), uid=uid))
        return None

    assert await Reconciler(claims, find, confirm_s=0).once() == ()
    assert claims.repeat(uid)


async def test_a_claim_that_the_disk_does_not_let_go_holds_no_other(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    claims = disk.start()
    stuck, other = claim(result(), name="stuck"), claim(result(1), name="other")
    claims.prepare(stuck)
    claims.prepare(other)
    spec = disk.directories.spec(stuck["metadata"]["uid"])
    spec.unlink()
    spec.mkdir()

    async def find(_: Record) -> Json | None:
        return None

    reconciler = Reconciler(claims, find, confirm_s=0)

    assert await reconciler.once() == ("ns/other",)
    spec.rmdir()
    assert await reconciler.once() == ("ns/stuck",)
