"""Who enters, who is parked, who comes back: the pure core of the admission actor. Start reading at `core`."""

from scheduler.admission.books import Addressed
from scheduler.admission.capacity import GroupCapacity
from scheduler.admission.core import AdmissionCore
from scheduler.admission.errors import (
    AdmissionCorrupt,
    AdmissionError,
    AdmissionRefused,
    CapacityExhausted,
    Draining,
    DuplicateRequest,
    NeverFits,
    NoGroup,
    OrderRefused,
    QueueFull,
    TooManyChoices,
    UnknownRequest,
    WrongState,
)
from scheduler.admission.hold import HoldEnd, HoldTerms
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
    "CapacityExhausted",
    "Draining",
    "DuplicateRequest",
    "GroupCapacity",
    "GroupRow",
    "HoldEnd",
    "HoldTerms",
    "NeverFits",
    "NoGroup",
    "OrderRefused",
    "QueueFull",
    "RequestRow",
    "TooManyChoices",
    "UnknownRequest",
    "WrongState",
]
