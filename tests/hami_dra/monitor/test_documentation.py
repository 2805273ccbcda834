"""MONITOR tells of every metric that there is, and of none that there is not."""

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.hami_dra.monitor.test_metrics import GOLDEN, a_usual_node
from tests.hami_dra.monitor.world import World
from tests.tools import manifests

PAGE = (Path(__file__).parents[3] / ".github" / "MONITOR.md").read_text()
SHOWN = PAGE.partition("## Metrics")[2].partition("## Alerts")[0]


def names(text: str) -> set[str]:
    return {
        f"{family.name}{'_total' if family.type == 'counter' else ''}"
        for family in text_string_to_metric_families(text)
    }


def rows() -> list[list[str]]:
    lines = [line for line in SHOWN.splitlines() if line.startswith("| `hami_")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_names_every_metric_and_no_other(world: World) -> None:
    a_usual_node(world)

    told = {name for row in rows() for name in re.findall(r"`(hami_\w+)`", row[0])}

    left_out = SHOWN.partition("What HAMi exports and this does not")[2]
    missing = set(re.findall(r"`(hami_\w+)`", left_out.partition("With `--legacy")[0]))
    assert told - missing == names(world.scrape())


def test_our_own_metrics_have_the_labels_that_the_page_names(world: World) -> None:
    a_usual_node(world)
    families = {
        f"{each.name}{'_total' if each.type == 'counter' else ''}": each
        for each in text_string_to_metric_families(world.scrape())
    }
    container = {"namespace", "pod", "container", "device_uuid"}

    for name, _, labels in [row for row in rows() if row[0].startswith("`hami_dra_monitor_")]:
        expected = container if labels == "the same" else set(re.findall(r"`(\w+)`", labels))
        [*samples] = families[name.strip("`")].samples
        assert samples
        for sample in samples:
            values = set(sample.labels.values())
            assert set(sample.labels) == expected - values - {
                *("cards", "claims", "card", "memory", "utilization"),
                *("record", "control", "usage"),
            }, name


def test_queries_of_the_page_name_metrics_that_exist() -> None:
    rules = PAGE.partition("## Alerts")[2].partition("## When")[0]
    [document] = manifests.objects(re.findall(r"```yaml\n(.*?)```", rules, re.DOTALL)[0])

    expressions = [rule["expr"] for rule in document["groups"][0]["rules"]]
    named = {name for text in expressions for name in re.findall(r"hami_\w+", text)}

    assert len(expressions) >= 5
    assert named <= names((GOLDEN / "scrape.txt").read_text())


def test_there_are_as_many_series_as_the_page_says(world: World) -> None:
    """Per container and card; nothing grows with time."""

    def count() -> int:
        lines = world.scrape().splitlines()
        return len([line for line in lines if not line.startswith("#")])

    found = re.findall(r"there are (\d+) series, per card (\d+) and .* more .* and (\d+)", PAGE)
    [[per_container, per_card, rest]] = found
    a_usual_node(world)

    # Simulated cards say nothing of themselves; the process's own six are not of this registry.
    cards = 3 * (int(per_card) - 3)
    assert count() == 4 * int(per_container) + cards + int(rest) - 6
    assert count() == count()
