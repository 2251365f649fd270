"""Who goes where next. Repeats one move, the best there is now, until there is none: bounded by seats and parked.

A fresh request enters the group with the most free pages, but no group where somebody of its tier or a higher one is
parked. When nothing has room for the head of the queue, or for a parked request, residents of strictly lower priority
are parked for it; while they leave, and when it has been passed often enough, its group is kept for it.
"""

from scheduler.admission.books import Addressed, Books
from scheduler.admission.group_view import GroupView
from scheduler.admission.request_record import RequestRecord
from scheduler.messages import ParkReason


def place_all(books: Books, now: float) -> list[Addressed]:
    """Every placement and displacement that is due now."""
    placement = Placement(books, now)
    orders: list[Addressed] = []
    while move := placement.next_move():
        orders += move
    return orders


class Placement:
    """One moment's placements. `_kept_id` names the group that is kept for the head of the queue, if any."""

    def __init__(self, books: Books, now: float) -> None:
        self._books = books
        self._policy = books.policy
        self._now = now
        self._views: dict[str, GroupView] = {}
        self._kept_id: str | None = None

    def next_move(self) -> list[Addressed]:
        """One admission, one restore, or the parks that make room for one; empty when nothing is due."""
        self._kept_id = None
        head = self._books.queue.first(self._now)
        move = [] if head is None else self._place_fresh(head)
        if not move:
            move = self._restore_somewhere(head)
        for order in move:
            self._views.pop(order.group_id, None)
        return move

    def _open_views(self) -> list[GroupView]:
        views = []
        for group_id, ledger in sorted(self._books.ledgers.items()):
            if ledger.closed_until is None or ledger.closed_until <= self._now:
                if group_id not in self._views:
                    self._views[group_id] = GroupView(ledger, self._policy, self._now)
                views.append(self._views[group_id])
        return views

    # ---- the head of the queue

    def _place_fresh(self, head: RequestRecord) -> list[Addressed]:
        """Admit the head, or make room for it, or keep a group for it."""
        views = [view for view in self._open_views() if view.lets_in(head)]
        if fitting := [view for view in views if view.fits(head)]:
            head.reserved_group_id = None
            return [self._books.admit(head, _emptiest(fitting).ledger, self._now)]
        if soon := [view for view in views if view.fits_soon(head)]:
            self._kept_id = _emptiest(soon).ledger.group_id
            return []
        if move := self._displace_for_fresh(head, views):
            return move
        if head.passes >= self._policy.max_passes and views:
            # Chosen once, and kept: with a target that moved about, every group could go on passing it.
            if head.reserved_group_id not in {view.ledger.group_id for view in views}:
                head.reserved_group_id = _emptiest(views).ledger.group_id
            self._kept_id = head.reserved_group_id
        return []

    def _displace_for_fresh(self, head: RequestRecord, views: list[GroupView]) -> list[Addressed]:
        """Park where the highest rank that must go is lowest, then where the fewest must go."""
        options = []
        for view in views:
            if (victims := view.victims_for(head)) is not None:
                rank = max(victim.effective_priority(self._policy) for victim in victims)
                options.append((rank, len(victims), view, victims))
        if not options:
            return []
        _, _, view, victims = min(options, key=lambda option: option[:2])
        return self._displace(view, victims)

    def _displace(self, view: GroupView, victims: list[RequestRecord]) -> list[Addressed]:
        return [self._books.park(victim, view.ledger, ParkReason.SEAT) for victim in victims]

    # ---- the parked

    def _restore_somewhere(self, head: RequestRecord | None) -> list[Addressed]:
        for view in self._open_views():
            line = view.line
            if head is not None and view.ledger.group_id == self._kept_id:
                # Kept for the head of the queue: only those who come before it may go.
                line = [record for record in line if not self._precedes(head, record)]
            if move := self._restore_from(view, line, head):
                return move
        return []

    def _restore_from(self, view: GroupView, line: list[RequestRecord], head: RequestRecord | None) -> list[Addressed]:
        """Restore the first of the line that fits, unless room is being made, or can be, for one before it."""
        reading = view.read_line(line)
        for record in reading.blocked:
            if view.fits_soon(record):
                return []
            if (victims := view.victims_for(record)) is not None:
                return self._displace(view, victims)
        if reading.goes is None:
            return []
        for record in reading.blocked:
            record.passes += 1
        if head is not None and view.ledger.can_ever_hold(head) and self._precedes(head, reading.goes):
            head.passes += 1
        return [self._books.restore(reading.goes, view.ledger, self._now)]

    def _precedes(self, head: RequestRecord, parked: RequestRecord) -> bool:
        return head.waiting_tier(self._policy, self._now) > parked.waiting_tier(self._policy, self._now)


def _emptiest(views: list[GroupView]) -> GroupView:
    """The first by name among equals."""
    return max(views, key=lambda view: view.headroom)
