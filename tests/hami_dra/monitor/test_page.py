"""The page for people: everything is there, and text of others stays text."""

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from hami_dra.monitor.cards import CardReading
from hami_dra.monitor.page import as_html
from hami_dra.monitor.pods import Container
from hami_dra.monitor.snapshot import CardUse, ContainerUse, DeviceUse, Given, Snapshot
from hami_dra.monitor.usage import Counted, Held
from hami_dra.node.share import Amounts
from tests.hami_dra.monitor.test_metrics import a_usual_node
from tests.hami_dra.monitor.world import World
from tests.hami_dra.node.claims import CARDS, result

NOW = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
MIB = 2**20
GIB = 2**30


def shown(snapshot: Snapshot, **problems: str) -> ET.Element:
    """Return the page as a tree, which shows that it is well-formed."""
    text = as_html(snapshot, problems, NOW)
    assert text.startswith("<!DOCTYPE html>\n<html")
    return ET.fromstring(text.partition("\n")[2])  # noqa: S314 - our own


def words(page: ET.Element) -> str:
    body = page.find("body")
    assert body is not None
    return " ".join("".join(body.itertext()).split())


def a_snapshot(use: DeviceUse, card: CardReading | None = None, pod: str = "pod") -> Snapshot:
    card = card or CardReading("GPU-1", 0, "NVIDIA L4", 24 * GIB)
    amounts = Amounts(4096, 30, 10)
    container = Container("team", pod, "main", 0, ())
    return Snapshot(
        "n1",
        cards=(CardUse(card, Given(amounts, 1, held=use.held)),),
        containers=(ContainerUse(container, 0, card.uuid, amounts, use),),
        claims=1,
    )


def test_it_shows_cards_and_the_containers_on_each(world: World) -> None:
    a_usual_node(world)

    world.scrape()
    page = shown(world.looker.look())

    said = words(page)
    assert said.startswith("GPUs of n1 3 cards, 4 claims, 4 containers with a share")
    sections = page.findall(".//section[@class='card']")
    codes = [each.findtext("header/code") for each in sections]
    assert codes == [card.uuid for card in CARDS]
    first = " ".join("".join(sections[0].itertext()).split())
    assert "12 000 MiB given away, 1 324 MiB in use of 81 920 MiB" in first
    assert "30 % given away and 1 without a limit" in first
    assert "team/busy" in first
    assert "1 324 MiB of 8 000 MiB" in first
    assert "2 allocations refused" in first
    assert "25 %" in first
    assert "team/whole" not in first


def test_it_says_what_fails_and_goes_on(world: World) -> None:
    world.pod("pod", result(0))
    world.socket.unlink()
    snapshot = world.looker.look()

    said = words(shown(snapshot, **{"pod-resources": "no such socket"}))

    assert "3 cards, 1 claim pod-resources: no such socket" in said
    assert "that the kubelet lists" not in said, "nobody has heard what it lists"
    assert "No container has a share of it." not in said
    assert said.count("Which containers have a share of it is not known now.") == 3


def test_it_shows_no_nothing_where_the_files_of_claims_cannot_be_read(world: World) -> None:
    world.pod("pod", result(0))
    world.disk.directories.claims.rename(world.disk.root / "elsewhere")
    world.disk.directories.claims.write_text("")
    snapshot = world.looker.look()

    said = words(shown(snapshot, **world.looker.problems()))

    assert said.startswith("GPUs of n1 3 cards claims: ")
    assert "memoryunknown given away, unknown in use of 81 920 MiB" in said
    assert "computeunknown given away" in said
    assert " 0 " not in said
    assert said.count("Which containers have a share of it is not known now.") == 3


def test_cards_that_never_told_who_they_are_are_not_taken_for_none() -> None:
    said = words(shown(Snapshot("n1", works={"cards": False}), cards="NVML does not answer"))

    assert said.startswith("GPUs of n1 0 claims, 0 containers with a share cards: NVML")
    assert "This node has no cards." not in said


def test_what_a_card_is_used_for_counts_each_claim_once(world: World) -> None:
    """Also one that two containers share, and that of an init container, which nobody lists."""
    shared = world.claim(result(0, memory="4Gi", cores="0"), name="shared")
    world.kubelet.hold("pod", {"a": [shared], "b": [shared]})
    initial = world.claim(result(0, memory="1Gi", cores="0"), name="init")
    world.use(shared, 0, [100 * MIB])
    world.use(initial, 0, [10 * MIB])
    world.scrape()

    said = words(shown(world.looker.look()))

    assert "5 120 MiB given away, 110 MiB in use of 81 920 MiB" in said
    assert "0 % given away and 2 without a limit" in said


def test_the_use_of_a_card_is_unknown_when_that_of_a_claim_is(world: World) -> None:
    bad, good = world.pod("bad", result(0, memory="4Gi")), world.pod("good", result(0))
    world.use(good, 0, [MIB])
    (world.folder(bad) / "usage").write_bytes(b"")

    said = words(shown(world.looker.look()))

    assert "8 192 MiB given away, unknown in use of 81 920 MiB" in said


def test_a_card_that_does_not_tell_says_so() -> None:
    silent = CardReading("GPU-1", 0, "NVIDIA L4", errors=(("memory", "Unknown Error"),))

    said = words(shown(a_snapshot(DeviceUse(4 * GIB, Held(GIB)), silent)))

    assert "does not tell its memory: Unknown Error" in said
    assert "in use of unknown" in said


def test_containers_of_a_card_that_is_not_found_are_still_there() -> None:
    snapshot = a_snapshot(DeviceUse(4 * GIB, Held(GIB)))

    said = words(shown(Snapshot("n1", containers=snapshot.containers, claims=1)))

    assert "Cards that cannot be found now" in said
    assert "team/pod" in said


def test_a_node_without_cards_says_so() -> None:
    assert "This node has no cards." in words(shown(Snapshot("n1")))


def test_what_is_not_known_is_not_shown_as_none() -> None:
    said = words(shown(a_snapshot(DeviceUse(4 * GIB))))

    assert "unknown" in said
    assert "not measured" in said


def test_a_container_at_its_limit_is_marked() -> None:
    def bars(held: int) -> int:
        page = shown(a_snapshot(DeviceUse(4 * GIB, Held(held))))
        return len(page.findall(".//rect[@class='full']"))

    assert bars(4 * GIB - MIB) == 1
    assert bars(2 * GIB) == 0


def test_it_reloads_itself_and_has_nothing_from_elsewhere() -> None:
    text = as_html(a_snapshot(DeviceUse(4 * GIB, Held(GIB))), {}, NOW)

    assert '<meta http-equiv="refresh" content="10"/>' in text
    assert "<script" not in text
    assert "src=" not in text
    assert "://" not in text
    assert 'href="metrics"' in text


def test_whoever_needs_longer_to_read_can_stop_it() -> None:
    """WCAG 2.2.1: what reloads itself can be kept from it, and takes no focus away meanwhile."""
    snapshot = a_snapshot(DeviceUse(4 * GIB, Held(GIB)))

    def links(page: ET.Element) -> list[str | None]:
        return [each.get("href") for each in page.iterfind(".//footer/a")]

    assert links(shown(snapshot)) == ["?still", "metrics"]

    text = as_html(snapshot, {}, NOW, is_still=True)

    assert "http-equiv" not in text
    assert links(ET.fromstring(text.partition("\n")[2])) == ["./", "metrics"]  # noqa: S314 - our own


@given(st.text(), st.text(), st.integers(0, 2**63), st.integers(0, 2**63))
def test_text_of_others_stays_text(name: str, trouble: str, held: int, refused: int) -> None:
    """Whatever pods, cards or errors are called, it is words between our own elements."""
    plain = shown(a_snapshot(DeviceUse(GIB, Held(held), 1.0, Counted(refused)), pod="x"), cards="x")
    card = CardReading("GPU-1", 0, name, 24 * GIB)

    page = shown(
        a_snapshot(DeviceUse(GIB, Held(held), 1.0, Counted(refused)), card, pod=name),
        cards=f"x{trouble}",
    )

    assert [each.tag for each in page.iter()] == [each.tag for each in plain.iter()]
