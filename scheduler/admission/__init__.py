"""Who enters, who is parked, who comes back: the pure core of the admission actor. Start reading at `core`."""

from scheduler.admission.books import Addressed
from scheduler.admission.core import AdmissionCore
from scheduler.admission.errors import (
    AdmissionCorrupt,
    AdmissionError,
    AdmissionRefused,
    DuplicateRequest,
    NeverFits,
    NoGroup,
    QueueFull,
)
from scheduler.admission.ledger import GroupCapacity
from scheduler.admission.policy import AdmissionPolicy
from scheduler.admission.status import AdmissionStatus, GroupRow, RequestRow

__all__ = [
    "Addressed",
    "AdmissionCore",
    "AdmissionCorrupt",
    "AdmissionError",
    "AdmissionPolicy",
    "AdmissionRefused",
    "AdmissionStatus",
    "DuplicateRequest",
    "GroupCapacity",
    "GroupRow",
    "NeverFits",
    "NoGroup",
    "QueueFull",
    "RequestRow",
]
