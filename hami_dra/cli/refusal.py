"""Tell of converted objects that whoever was asked to check them refuses."""

from collections.abc import Iterable

from hami_dra.cli.report import Entry, Remark, Result
from hami_dra.cli.workloads import Thing


def refused(where: str, thing: Thing, reason: str, remarks: Iterable[Remark] = ()) -> Entry:
    """Return what a report says of an object that was refused.

    Args:
        where: its document stood, as `file:line`.
        thing: the object.
        reason: who refused it, and why.
        remarks: what exactly is wrong, if that is known place by place.
    """
    source, _, line = where.rpartition(":")
    return Entry(
        source=source,
        line=int(line),
        title=thing.title,
        result=Result.REFUSED,
        namespace=thing.namespace,
        reason=reason,
        remarks=tuple(remarks),
    )
