"""What the engine has to say, until its loop takes it: tokens by gateway, events for admission.

Events get their account (`GroupLoad`) when they are taken, all of one batch the same: the newest. A resident in an
account is a sequence that is running, being parked or being restored. An ended one whose pages wait for the plans in
flight is in no account: its pages are neither free nor a resident's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from kv import pages_for
from scheduler.engine.commands import CommandLine
from scheduler.engine.roster import Roster
from scheduler.engine.sequence import Sequence
from scheduler.messages import EngineEvent, FinishReason, GroupLoad, Notice, Progress, ResidentLoad, TokenEvent

PROGRESS_S = 0.25


class Outbox:
    def __init__(self, roster: Roster, commands: CommandLine) -> None:
        self._roster = roster
        self._commands = commands
        self._tokens: dict[str, list[TokenEvent]] = {}
        self._events: list[Callable[..., EngineEvent]] = []
        self._accounted_at = float("-inf")
        self._accounted_free = roster.pool.num_free

    def say(
        self,
        seq: Sequence,
        tokens: tuple[int, ...] = (),
        *,
        notice: Notice | None = None,
        finish: FinishReason | None = None,
    ) -> None:
        """A line to the gateway of `seq`."""
        event = TokenEvent(
            request_id=seq.request_id,
            tokens=tokens,
            notice=notice,
            finish=finish,
            error=seq.error,
            parks=seq.parks,
            parked_s=seq.parked_s,
        )
        batch = self._tokens.get(seq.submission.gateway_id)
        if batch is None:
            self._tokens[seq.submission.gateway_id] = [event]
        else:
            batch.append(event)

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
        tokens, self._tokens = self._tokens, {}
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
        page_size = roster.config.page_size
        return GroupLoad(
            group_id=roster.config.group_id,
            last_command=self._commands.last_command,
            pages_total=roster.pool.num_total,
            pages_free=roster.pool.num_free,
            arena_total=roster.arena.num_total,
            arena_free=roster.arena.num_free,
            residents=tuple(
                ResidentLoad(
                    request_id=seq.request_id,
                    num_tokens=seq.num_tokens,
                    num_pages=seq.table.num_pages,
                    pages_to_hold=pages_for(seq.num_tokens, page_size),
                )
                for seq in roster.residents.values()
            ),
        )
