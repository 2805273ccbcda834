"""All claims that are remembered, found by claim and by card. Pure.

What a card still has is asked for every claim that is prepared, and a node may have hundreds.
"""

from collections.abc import Iterable, Mapping

from hami_dra.node.prepare import Holding
from hami_dra.node.record import Record


class Books:
    """Records by claim UID; not for several threads at one time.

    Args:
        records: what is remembered at the beginning.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: dict[str, Record] = {}
        self._by_card: dict[str, dict[str, Record]] = {}
        for record in records:
            self.put(record)

    def get(self, uid: str) -> Record | None:
        """Return the record of a claim."""
        return self._records.get(uid)

    def all(self) -> dict[str, Record]:
        """Return every record, by claim UID."""
        return dict(self._records)

    def put(self, record: Record) -> None:
        """Remember a claim, in place of what was remembered of it."""
        self.drop(record.uid)
        self._records[record.uid] = record
        for share in record.shares:
            self._by_card.setdefault(share.uuid, {})[record.uid] = record

    def drop(self, uid: str) -> Record | None:
        """Forget a claim; return what was remembered of it."""
        record = self._records.pop(uid, None)
        for share in record.shares if record else ():
            on_card = self._by_card.get(share.uuid, {})
            on_card.pop(uid, None)
            if not on_card:
                self._by_card.pop(share.uuid, None)
        return record

    def held(self, uuid: str, *, besides: str = "") -> Holding:
        """Add up what claims hold of one card.

        Args:
            uuid: the card.
            besides: UID of a claim that does not count.
        """
        records = self._by_card.get(uuid, {})
        return _sum(record for uid, record in records.items() if uid != besides).get(
            uuid, Holding()
        )

    def holdings(self) -> Mapping[str, Holding]:
        """Add up what claims hold, by the card's UUID."""
        return _sum(self._records.values())


def _sum(records: Iterable[Record]) -> dict[str, Holding]:
    held: dict[str, Holding] = {}
    for record in records:
        for share in record.shares:
            before = held.get(share.uuid, Holding())
            held[share.uuid] = before.plus(share, record.title)
    return held
