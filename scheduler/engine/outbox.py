"""What the engine has to say, until its loop takes it: tokens by gateway, events for admission.

Events get their account (`GroupLoad`) when they are taken, all of one batch the same: the newest. A resident in an
account is a request that is running, being parked or being restored. An ended one, or an ended choice, whose pages
wait for the plans in flight is in no account: its pages are neither free nor a resident's.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from scheduler.engine.commands import CommandLine
from scheduler.engine.room import Room
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Family, Sequence
from scheduler.messages import (
    EngineEvent,
    Finished,
    FinishReason,
    GroupLoad,
    Notice,
    Progress,
    ResidentLoad,
    Submission,
    TokenEvent,
)

PROGRESS_S = 0.25


class Outbox:
    def __init__(self, roster: Roster, room: Room, commands: CommandLine) -> None:
        self._roster = roster
        self._room = room
        self._commands = commands
        self._tokens: defaultdict[str, list[TokenEvent]] = defaultdict(list)
        self._events: list[Callable[..., EngineEvent]] = []
        self._accounted_at = float("-inf")
        self._accounted_free = roster.pool.num_free

    def say(self, seq: Sequence, tokens: tuple[int, ...], finish: FinishReason | None = None) -> None:
        """Tokens of a choice, or its end, for the gateway."""
        family = seq.family
        self._tokens[family.gateway_id].append(
            TokenEvent(
                request_id=family.request_id,
                choice=seq.choice,
                tokens=tokens,
                finish=finish,
                error=family.error,
                parks=family.parks,
                recomputes=family.recomputes,
                parked_s=family.parked_s,
            )
        )

    def notify(self, family: Family, notice: Notice) -> None:
        """A word to all choices of a request."""
        self._tokens[family.gateway_id].append(
            TokenEvent(
                request_id=family.request_id,
                notice=notice,
                parks=family.parks,
                recomputes=family.recomputes,
                parked_s=family.parked_s,
            )
        )

    def turn_away(self, submission: Submission, finish: FinishReason, error: str | None) -> None:
        """A request that never became one: every choice of it ends, and so does it."""
        for choice in range(max(1, submission.n)):
            event = TokenEvent(request_id=submission.request_id, choice=choice, finish=finish, error=error)
            self._tokens[submission.gateway_id].append(event)
        num_tokens = len(submission.prompt_tokens)
        self.report(Finished, request_id=submission.request_id, num_tokens=num_tokens, reason=finish, error=error)

    def report(self, kind: type[EngineEvent], **facts: Any) -> None:
        """An event for admission; its `load` is filled in when it is taken."""
        self._events.append(partial(kind, **facts))

    def note_progress(self, now: float) -> None:
        """A `Progress` if the pool has changed and nothing has accounted for it lately."""
        free = self._roster.pool.num_free
        if not self._events:
            if free == self._accounted_free or now - self._accounted_at < PROGRESS_S:
                return
            self.report(Progress)
        self._accounted_at = now
        self._accounted_free = free

    def take_tokens(self) -> dict[str, list[TokenEvent]]:
        if not self._tokens:
            return {}
        tokens, self._tokens = dict(self._tokens), defaultdict(list)
        return tokens

    def take_events(self) -> list[EngineEvent]:
        if not self._events:
            return []
        events, self._events = self._events, []
        load = self.account()
        return [event(load=load) for event in events]

    def account(self) -> GroupLoad:
        """The group at this moment."""
        roster = self._roster
        return GroupLoad(
            group_id=roster.config.group_id,
            last_command=self._commands.last_command,
            pages_total=roster.pool.num_total,
            pages_free=roster.pool.num_free,
            arena_total=roster.arena.num_total,
            arena_free=roster.arena.num_free,
            residents=tuple(
                ResidentLoad(
                    request_id=family.request_id,
                    num_tokens=family.num_tokens,
                    seats=len(family.living),
                    num_pages=family.num_pages,
                    pages_to_hold=self._room.to_hold(family),
                )
                for family in roster.residents.values()
            ),
        )
