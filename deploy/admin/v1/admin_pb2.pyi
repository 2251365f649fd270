from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_QUEUED: _ClassVar[State]
    STATE_RESIDENT: _ClassVar[State]
    STATE_PARKING: _ClassVar[State]
    STATE_PARKED: _ClassVar[State]
    STATE_RESTORING: _ClassVar[State]

class HoldEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOLD_END_UNSPECIFIED: _ClassVar[HoldEnd]
    HOLD_END_UNPARK: _ClassVar[HoldEnd]
    HOLD_END_CANCEL: _ClassVar[HoldEnd]
STATE_UNSPECIFIED: State
STATE_QUEUED: State
STATE_RESIDENT: State
STATE_PARKING: State
STATE_PARKED: State
STATE_RESTORING: State
HOLD_END_UNSPECIFIED: HoldEnd
HOLD_END_UNPARK: HoldEnd
HOLD_END_CANCEL: HoldEnd

class Request(_message.Message):
    __slots__ = ("request_id", "slot", "owner", "state", "held", "hold_left_s", "then", "cancelling", "priority", "effective_priority", "prompt_tokens", "tokens", "n", "seats", "pages", "arena_pages", "parks", "recomputes", "passes", "waited_s", "parked_s", "age_s", "group_id")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HOLD_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    THEN_FIELD_NUMBER: _ClassVar[int]
    CANCELLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    ARENA_PAGES_FIELD_NUMBER: _ClassVar[int]
    PARKS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTES_FIELD_NUMBER: _ClassVar[int]
    PASSES_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    PARKED_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    slot: int
    owner: str
    state: State
    held: bool
    hold_left_s: float
    then: HoldEnd
    cancelling: bool
    priority: int
    effective_priority: int
    prompt_tokens: int
    tokens: int
    n: int
    seats: int
    pages: int
    arena_pages: int
    parks: int
    recomputes: int
    passes: int
    waited_s: float
    parked_s: float
    age_s: float
    group_id: str
    def __init__(self, request_id: _Optional[str] = ..., slot: _Optional[int] = ..., owner: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., held: _Optional[bool] = ..., hold_left_s: _Optional[float] = ..., then: _Optional[_Union[HoldEnd, str]] = ..., cancelling: _Optional[bool] = ..., priority: _Optional[int] = ..., effective_priority: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., tokens: _Optional[int] = ..., n: _Optional[int] = ..., seats: _Optional[int] = ..., pages: _Optional[int] = ..., arena_pages: _Optional[int] = ..., parks: _Optional[int] = ..., recomputes: _Optional[int] = ..., passes: _Optional[int] = ..., waited_s: _Optional[float] = ..., parked_s: _Optional[float] = ..., age_s: _Optional[float] = ..., group_id: _Optional[str] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ("states", "id_prefix", "limit")
    STATES_FIELD_NUMBER: _ClassVar[int]
    ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[State]
    id_prefix: str
    limit: int
    def __init__(self, states: _Optional[_Iterable[_Union[State, str]]] = ..., id_prefix: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests", "total")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    total: int
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ..., total: _Optional[int] = ...) -> None: ...

class GetRequestRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ParkRequest(_message.Message):
    __slots__ = ("request_id", "deadline_s", "then", "wait_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    THEN_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    deadline_s: float
    then: HoldEnd
    wait_s: float
    def __init__(self, request_id: _Optional[str] = ..., deadline_s: _Optional[float] = ..., then: _Optional[_Union[HoldEnd, str]] = ..., wait_s: _Optional[float] = ...) -> None: ...

class UnparkRequest(_message.Message):
    __slots__ = ("request_id", "wait_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    wait_s: float
    def __init__(self, request_id: _Optional[str] = ..., wait_s: _Optional[float] = ...) -> None: ...

class SetPriorityRequest(_message.Message):
    __slots__ = ("request_id", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    priority: int
    def __init__(self, request_id: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DrainResponse(_message.Message):
    __slots__ = ("living",)
    LIVING_FIELD_NUMBER: _ClassVar[int]
    living: int
    def __init__(self, living: _Optional[int] = ...) -> None: ...

class UndrainRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UndrainResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("draining", "exhausted", "by_state", "tiers", "queued_requests", "queued_tokens", "groups")
    class ByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    BY_STATE_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    draining: bool
    exhausted: bool
    by_state: _containers.ScalarMap[str, int]
    tiers: _containers.RepeatedCompositeFieldContainer[Tier]
    queued_requests: int
    queued_tokens: int
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, draining: _Optional[bool] = ..., exhausted: _Optional[bool] = ..., by_state: _Optional[_Mapping[str, int]] = ..., tiers: _Optional[_Iterable[_Union[Tier, _Mapping]]] = ..., queued_requests: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class Tier(_message.Message):
    __slots__ = ("effective_priority", "by_state")
    class ByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    EFFECTIVE_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BY_STATE_FIELD_NUMBER: _ClassVar[int]
    effective_priority: int
    by_state: _containers.ScalarMap[str, int]
    def __init__(self, effective_priority: _Optional[int] = ..., by_state: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("group_id", "pages_total", "pages_free", "pages_unclaimed", "arena_total", "arena_free", "seats", "seats_free", "parked", "shortfall", "survivor_id", "exhausted")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PAGES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    PAGES_FREE_FIELD_NUMBER: _ClassVar[int]
    PAGES_UNCLAIMED_FIELD_NUMBER: _ClassVar[int]
    ARENA_TOTAL_FIELD_NUMBER: _ClassVar[int]
    ARENA_FREE_FIELD_NUMBER: _ClassVar[int]
    SEATS_FIELD_NUMBER: _ClassVar[int]
    SEATS_FREE_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    SHORTFALL_FIELD_NUMBER: _ClassVar[int]
    SURVIVOR_ID_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    pages_total: int
    pages_free: int
    pages_unclaimed: int
    arena_total: int
    arena_free: int
    seats: int
    seats_free: int
    parked: int
    shortfall: int
    survivor_id: str
    exhausted: bool
    def __init__(self, group_id: _Optional[str] = ..., pages_total: _Optional[int] = ..., pages_free: _Optional[int] = ..., pages_unclaimed: _Optional[int] = ..., arena_total: _Optional[int] = ..., arena_free: _Optional[int] = ..., seats: _Optional[int] = ..., seats_free: _Optional[int] = ..., parked: _Optional[int] = ..., shortfall: _Optional[int] = ..., survivor_id: _Optional[str] = ..., exhausted: _Optional[bool] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("from_number", "request_id")
    FROM_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    from_number: int
    request_id: str
    def __init__(self, from_number: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("events", "next", "lost")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next: int
    lost: int
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next: _Optional[int] = ..., lost: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "unix_s", "kind", "request_id", "group_id", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Fact
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Fact, _Mapping]] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNIX_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    unix_s: float
    kind: str
    request_id: str
    group_id: str
    facts: _containers.MessageMap[str, Fact]
    def __init__(self, number: _Optional[int] = ..., unix_s: _Optional[float] = ..., kind: _Optional[str] = ..., request_id: _Optional[str] = ..., group_id: _Optional[str] = ..., facts: _Optional[_Mapping[str, Fact]] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("text", "whole", "real")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    text: str
    whole: int
    real: float
    def __init__(self, text: _Optional[str] = ..., whole: _Optional[int] = ..., real: _Optional[float] = ...) -> None: ...
