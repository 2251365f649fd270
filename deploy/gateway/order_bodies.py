"""The bodies of orders to living requests. A field that is not known is refused: an order half understood is worse than
none.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from deploy.gateway.fields import BOUNDS, INT32_MAX, CheckedBody, wrong
from scheduler.admission import HoldEnd, HoldTerms
from scheduler.admission.hold import MAX_HOLD_S

_MAX_SHOWN = 64  # characters of a name that we did not give


class OrderBody(CheckedBody):
    """Refuses at the first field that is not known, so that thousands of them cost no more than one."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: Any) -> Any:
        unknown = (
            next((name for name in data if name not in cls.model_fields), None) if isinstance(data, dict) else None
        )
        if unknown is not None:
            known = ", ".join(f"'{name}'" for name in cls.bounds) or "none"
            shown = unknown if len(unknown) <= _MAX_SHOWN else f"{unknown[:_MAX_SHOWN]}..."
            raise wrong(f"'{shown}' is not a field of this body; known fields: {known}", shown)
        return data


class ParkOrder(OrderBody):
    """Without a deadline the request is held until it is unparked."""

    bounds: ClassVar[Mapping[str, str]] = {
        "deadline_s": f"a number of seconds in (0, {MAX_HOLD_S:.0f}]; leave it out to hold without end",
        "then": 'what happens at the deadline, "unpark" or "cancel"; "unpark" is the default',
    }
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

    deadline_s: Annotated[float, Field(gt=0, le=MAX_HOLD_S)] | None = None
    then: Literal["unpark", "cancel"] | None = None

    @model_validator(mode="after")
    def _then_needs_a_deadline(self) -> "ParkOrder":
        if self.then is not None and self.deadline_s is None:
            raise wrong("'then' says what happens at the deadline; add 'deadline_s' or leave it out", "then")
        return self

    @property
    def terms(self) -> HoldTerms:
        return HoldTerms(self.deadline_s, HoldEnd(self.then or HoldEnd.UNPARK))


class UnparkOrder(OrderBody):
    """There is nothing to say."""

    bounds: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PriorityOrder(OrderBody):
    """What can be changed of a living request."""

    bounds: ClassVar[Mapping[str, str]] = {"priority": BOUNDS["priority"]}
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    priority: Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)]
