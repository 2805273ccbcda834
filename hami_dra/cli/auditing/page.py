"""An audit as one HTML file to hand on: no scripts, nothing that is loaded from anywhere."""

from typing import Final

from hami_dra.cli.auditing import chart
from hami_dra.cli.auditing.advice import ADVICE
from hami_dra.cli.auditing.findings import Audit, Finding, Outcome
from hami_dra.cli.auditing.style import STYLE
from hami_dra.cli.auditing.text import headline, totals
from hami_dra.markup import Markup, element, joined, table
from hami_dra.migration import Code

_TITLE: Final = "GPU sharing audit"
_DRAWN: Final = 30
"""Namespaces in a chart; the tables have all."""

_MEANINGS: Final = {
    Outcome.CONVERTS: "pods become pods with claims; nothing to do",
    Outcome.WEBHOOK: "the manifest stays; the webhook converts the pods that it leads to",
    Outcome.PERSON: "converts with notices, or stays as it is: look at the notices",
    Outcome.REJECTED: "pods would be refused; the reason says what to write instead",
    Outcome.CONVERTED: "carries claims already",
}


def as_html(audit: Audit) -> str:
    """Return the page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{_TITLE}: {_where(audit)}"),
        element("style", Markup(STYLE)),
    )
    main = element(
        "main",
        joined(
            _about(audit),
            _unread(audit),
            _figures(audit),
            _charts(audit),
            _advice(audit),
            _sums(audit),
            _bounds(audit),
            *(_namespace(audit, each.name) for each in audit.namespaces),
        ),
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', main), lang='en')}\n"


def _where(audit: Audit) -> str:
    return f"namespace {audit.scope}" if audit.scope else "all namespaces"


def _about(audit: Audit) -> Markup:
    made = (
        f"Kubernetes {audit.server}, {_where(audit)}, {audit.date}. Made by ",
        element("code", audit.command),
        "; nothing was written to the cluster.",
    )
    said = headline(audit)
    text = (
        "What becomes of workloads that ask for GPUs in HAMi's words when they run on Kubernetes'"
        f" own device allocation. {said[0].upper()}{said[1:]}."
    )
    return joined(element("h1", _TITLE), element("p", *made, class_="about"), element("p", text))


def _unread(audit: Audit) -> Markup:
    if not audit.unread:
        return Markup()
    items = (element("li", str(each)) for each in audit.unread)
    said = element("p", element("strong", "Not everything could be read, so this is not all:"))
    return element("section", said, element("ul", *items), class_="warning", role="note")


def _figures(audit: Audit) -> Markup:
    everything = audit.everything
    cards, memory, cores = totals(everything.before, everything.after)
    boxes = [("Workloads", str(everything.workloads), "all")]
    boxes += [
        (outcome.text.capitalize(), str(everything.counts[outcome]), outcome.value)
        for outcome in Outcome
    ]
    boxes += [("Shares of cards", cards, "wide"), ("Memory (MiB)", memory, "wide")]
    boxes += [("Compute (% of a card)", cores, "wide")]
    drawn = (
        element("div", element("dt", name), element("dd", value), class_=colour)
        for name, value, colour in boxes
    )
    rows = [[each.text, _MEANINGS[each]] for each in Outcome]
    return joined(
        element("dl", *drawn, class_="figures"),
        table("What the results mean", ["Result", "It means"], rows),
    )


def _charts(audit: Audit) -> Markup:
    if not audit.namespaces:
        return Markup()
    largest = sorted(audit.namespaces, key=lambda each: (-each.workloads, each.name))[:_DRAWN]
    left = len(audit.namespaces) - len(largest)
    rest = element("p", f"{left} smaller namespaces are in the tables only.") if left else ""
    legend = element(
        "ul",
        element("li", element("span", "", class_="mark before"), " asked for"),
        element("li", element("span", "", class_="mark after"), " taken by claims"),
        class_="legend",
    )
    return joined(
        element("h2", "Workloads by namespace"),
        chart.outcomes(largest),
        element("h2", "Memory before and after, in MiB"),
        legend,
        chart.memory(largest),
        rest,
    )


def _advice(audit: Audit) -> Markup:
    if not audit.codes:
        return Markup()
    rows = [
        [code, str(count), ADVICE[Code(code)].meaning, ADVICE[Code(code)].remedy]
        for code, count in audit.codes.items()
    ]
    head = ["Notice", "Workloads", "It means", "What you can do"]
    return joined(
        element("h2", "What to do"), table("Notices, and how many workloads have each", head, rows)
    )


def _sums(audit: Audit) -> Markup:
    if not audit.namespaces:
        return Markup()
    rows = [
        [each.name or "all", str(each.workloads), *totals(each.before, each.after)]
        for each in (*audit.namespaces, audit.everything)
    ]
    head = ["Namespace", "Workloads", "Shares of cards", "Memory (MiB)", "Compute (%)"]
    caption = (
        "What workloads ask for, times their copies, and what their claims take. A whole card and a"
        " percentage count as the largest card that there is."
    )
    return joined(element("h2", "Totals"), table(caption, head, rows, numbers=1))


def _bounds(audit: Audit) -> Markup:
    if not audit.bounds:
        return Markup()
    rows = [
        [each.title, each.namespace or "-", each.says, each.becomes, each.fix or "nothing to do"]
        for each in audit.bounds
    ]
    head = ["Object", "Namespace", "It says", "What becomes of it", "What to do"]
    caption = "Objects that limit or count resources which converted pods no longer carry"
    return joined(element("h2", "Limits, quotas and queues"), table(caption, head, rows))


def _namespace(audit: Audit, name: str) -> Markup:
    rows = [_workload(each) for each in audit.within(name)]
    head = ["Workload", "Copies", "Asks for", "Result", "What to know"]
    title = f"Namespace {name}" if name else "No namespace"
    return joined(element("h2", title), table(f"Workloads of {name or 'no namespace'}", head, rows))


def _workload(each: Finding) -> list[str]:
    told = (element("li", text) for text in each.told)
    return [
        each.title,
        each.pods,
        "; ".join(each.asked),
        element("span", each.outcome.text, class_=f"outcome {each.outcome.value}"),
        element("ul", *told) if each.told else "",
    ]
