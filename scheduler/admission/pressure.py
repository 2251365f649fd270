"""What is ordered when an engine runs short of pages.

Every answer either has enough pages on their way out, or orders at least one park more, or finds that nobody can go
(alone, arena full, every park failed just now); in the last case the engine itself decides what ends, and where the
arena is to blame the group counts as exhausted: the queue pushes back until something ends or comes free. So pressure
is met in at most as many rounds as there are residents, and each round takes a bounded time.
"""

from scheduler.admission.books import Addressed, Books
from scheduler.admission.ledger import GroupLedger
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.request_record import RequestState
from scheduler.admission.victim import choose_survivor, victims_for_shortfall
from scheduler.messages import ParkReason


def relieve(books: Books, ledger: GroupLedger, now: float) -> list[Addressed]:
    """Park as many victims as the shortfall asks for, having marked who is never one."""
    if ledger.shortfall == 0:
        ledger.note_relief()
        return []
    _mark_survivor(ledger, books.policy)
    victims = victims_for_shortfall(ledger, books.policy, now)
    if victims:
        ledger.note_relief()
    else:
        ledger.note_no_relief()
    return [books.park(victim, ledger, ParkReason.PRESSURE) for victim in victims]


def _mark_survivor(ledger: GroupLedger, policy: AdmissionPolicy) -> None:
    """Whoever is marked keeps the mark, but not against one of a higher tier, who would be parked in its stead."""
    residents = [
        record for record in ledger.staying() if record.state is RequestState.RESIDENT and ledger.is_carried_out(record)
    ]
    best = choose_survivor(residents, policy)
    if best is None or len(residents) < 2:
        return
    marked = next((record for record in residents if record.request_id == ledger.survivor_id), None)
    if marked is None or best.effective_priority(policy) > marked.effective_priority(policy):
        ledger.survivor_id = best.request_id
