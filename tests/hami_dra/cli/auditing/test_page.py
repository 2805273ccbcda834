"""The report is one well-formed page that loads nothing, and no text in it becomes markup."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from hami_dra.cli.auditing.advice import ADVICE
from hami_dra.cli.auditing.findings import (
    Audit,
    Bound,
    Finding,
    Outcome,
    Summary,
    Unread,
    summaries,
)
from hami_dra.cli.auditing.page import as_html
from hami_dra.cli.auditing.style import STYLE
from hami_dra.cli.auditing.text import as_markdown, as_table
from hami_dra.cli.report import Remark
from hami_dra.migration import Code, Policy
from tests.screens import ROOT

HOSTILE = "<script>alert('x')</script>\"&]]>--> \x1b[31m\x00\u202e\ud800 é"
POLICY = Policy()


def audit(*findings: Finding, text: str = "calm", bounds: int = 1, unread: int = 1) -> Audit:
    return Audit(
        server=text,
        scope="",
        command=text,
        date="2026-11-30",
        everything=Summary.of("", findings, POLICY),
        namespaces=summaries(findings, POLICY),
        findings=findings,
        bounds=(Bound(text, text, text, text, text),) * bounds,
        unread=(Unread(text, text),) * unread,
    )


def finding(text: str, outcome: Outcome, **more: int) -> Finding:
    amounts = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}
    return Finding(
        namespace=f"{text}-{outcome.name}",
        title=text,
        outcome=outcome,
        asked=(text,),
        reason=text,
        notices=(Remark(text, Code.HINT_LOST.value, text),),
        before=amounts,
        after={**amounts, **more},
    )


def every(text: str) -> Audit:
    return audit(*(finding(text, outcome) for outcome in Outcome), text=text)


def parsed(page: str) -> ET.Element:
    return ET.fromstring(page.removeprefix("<!DOCTYPE html>\n"))  # noqa: S314 - our own


def test_hostile_text_stays_text() -> None:
    calm, hostile = parsed(as_html(every("calm"))), parsed(as_html(every(HOSTILE)))

    assert [each.tag for each in hostile.iter()] == [each.tag for each in calm.iter()]
    shown = "".join(hostile.itertext())
    assert "<script>alert('x')</script>\"&]]>--> " in shown
    assert not re.search("[\x00\x1b\u202e\ud800]", as_html(every(HOSTILE)))


@pytest.mark.parametrize("shown", [as_table, as_markdown])
def test_hostile_text_moves_no_terminal_and_breaks_no_table(shown: object) -> None:
    assert callable(shown)
    text = shown(every(HOSTILE))

    assert not re.search("[\x00\x1b\u202e\ud800]", text)
    if shown is as_markdown:
        assert "<script" not in text


def test_nothing_is_loaded_and_nothing_runs() -> None:
    page = as_html(every("calm"))

    tags = {each.tag.rpartition("}")[2] for each in parsed(page).iter()}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "use", "image"})
    attributes = {key for each in parsed(page).iter() for key in each.attrib}
    assert not {
        key for key in attributes if key.startswith("on") or key in {"href", "src", "style"}
    }
    assert set(re.findall(r"\w+://[^\"]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in page
    assert "@import" not in page


def test_it_can_be_read_without_eyes_and_without_colours() -> None:
    page = parsed(as_html(every("calm")))

    assert page.attrib["lang"] == "en"
    levels = [int(each.tag[1]) for each in page.iter() if re.fullmatch("h[1-6]", each.tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for table in page.iter("table"):
        assert table.find("caption") is not None
        assert all("scope" in each.attrib for each in table.iter("th"))
    drawings = [each for each in page.iter() if each.tag.endswith("svg")]
    assert all(each.attrib["role"] == "img" and each.attrib["aria-label"] for each in drawings)
    words = " ".join(page.itertext())
    assert all(outcome.counted(1) in words for outcome in Outcome)


def luminance(colour: str) -> float:
    digits = colour * 2 if len(colour) == len("fff") else colour  # only #fff and #000 are short
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("mode", range(3), ids=["light", "dark", "print"])
def test_every_colour_of_text_stands_out(mode: int) -> None:
    """WCAG 2 asks for 4.5 to 1."""
    root = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[mode]
    colours = dict(re.findall(r"--(\w+): #([0-9a-f]+)", root))
    texts = set(colours) - {"paper", "panel", "line"}

    for ground in ("paper", "panel"):
        for name in texts:
            pair = sorted((luminance(colours[name]), luminance(colours[ground])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (name, ground)


def test_the_same_audit_gives_the_same_page() -> None:
    one = every("calm")

    assert as_html(one) == as_html(replace(one))
    assert as_html(one) == as_html(replace(one, date="some day")).replace("some day", one.date)


def test_an_empty_cluster_has_a_page_too() -> None:
    page = as_html(audit(bounds=0, unread=0))

    assert "Nothing asks for a GPU in HAMi's words." in "".join(parsed(page).itertext())
    assert "<svg" not in page


def test_many_namespaces_are_drawn_in_part_and_listed_as_a_whole() -> None:
    many = [
        replace(finding("n", Outcome.CONVERTS), namespace=f"team-{number:02}")
        for number in range(40)
    ]
    page = as_html(audit(*many))

    assert "10 smaller namespaces are in the tables only." in page
    assert all(page.count(f">team-{number:02}<") >= 1 for number in range(40))


def test_a_whole_card_of_unknown_size_is_said_to_be_unknown() -> None:
    unknown = replace(finding("n", Outcome.CONVERTS), after={"nvidia.com/gpumem": None})

    assert "4 000 → unknown" in as_html(audit(unknown))


def test_the_advice_is_the_readme_s() -> None:
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    told = {row[0]: tuple(_bare(each) for each in row[1:]) for row in rows if row[0][0].isupper()}

    assert {code.value: tuple(advice) for code, advice in ADVICE.items()} == told
    assert set(ADVICE) == set(Code)


def _bare(text: str) -> str:
    return re.sub(r"\[[A-Z]+\]\((.*?)\)", r"\1", text).replace("`", "")
