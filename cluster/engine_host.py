"""An engine with its executor, its token hub and its line to admission. Plain asyncio; the actor round it is a shim."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from cluster.cluster_spec import GroupSpec, TokenAddress
from cluster.engine_figures import EngineFigures
from cluster.engine_port import EngineLost, EngineOrder, EngineWord, Farewell, GatewayLost
from cluster.ordered_sender import OrderedSender
from cluster.token_hub import TokenHub
from scheduler.engine import EngineCore
from scheduler.engine.loop import EngineLoop
from scheduler.executor import Executor, ExecutorFailed
from scheduler.messages import TokenEvent
from workers.link.endpoint import Endpoint

log = logging.getLogger(__name__)

_MAX_WAITING = 100_000
_FLUSH_TIMEOUT_S = 2.0


class EngineHost:
    """`tell` carries a batch of words to admission and returns when they are taken. Owns `executor` from `start` on."""

    def __init__(
        self, spec: GroupSpec, executor: Executor, tell: Callable[[Sequence[EngineWord]], Awaitable[None]]
    ) -> None:
        self._spec = spec
        self._words: OrderedSender[EngineWord] = OrderedSender(tell, self._lost_admission, _MAX_WAITING)
        self._hub = TokenHub(lambda gateway_id: self._words.put(GatewayLost(gateway_id)))
        self._core = EngineCore(spec.engine)
        self.figures = EngineFigures(spec.group_id, self._core.counters)
        self._loop = EngineLoop(self._core, executor, self._hub.send, self._words.put)
        self._running: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._no_admission: str | None = None

    async def start(self, endpoint: Endpoint | None = None) -> TokenAddress:
        """Listen for gateways and run the loop."""
        address = TokenAddress(
            group_id=self._spec.group_id, endpoint=await self._hub.open(endpoint), token=self._hub.token
        )
        self._running = asyncio.create_task(self._run(), name=f"engine {self._spec.group_id}")
        return address

    def post(self, orders: Sequence[EngineOrder]) -> None:
        """From admission, in their order."""
        for order in orders:
            if isinstance(order, Farewell):
                self._hub.send({order.gateway_id: _ends(order)})
            else:
                self._loop.post(order)

    async def probe(self) -> None:
        """Returns after the ranks have answered a step, or while they are long at one.

        Raises ExecutorFailed and TimeoutError.
        """
        await self._loop.probe()

    async def ended(self) -> str:
        """Waits until the loop has ended, or nobody steers it any more; why."""
        await self._ended.wait()
        return self._loop.failure or self._no_admission or "the engine was stopped"

    async def stop(self) -> None:
        """End what lives, then the ranks, then the links. Idempotent."""
        await self._loop.stop()
        if self._running is not None:
            await asyncio.wait([self._running])
        try:
            async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                await self._words.flush()
        except TimeoutError:
            log.warning("admission did not take the last words of %s", self._spec.group_id)
        self._words.close()
        self._hub.close()

    def check_integrity(self) -> None:
        """Raises what the engine's core raises."""
        self._core.check_integrity()

    async def _run(self) -> None:
        try:
            await self._loop.run()
        except ExecutorFailed as error:
            log.error("%s: %s", self._spec.group_id, error)
            self._words.put(EngineLost(str(error)))
        except Exception as error:  # a fault of the engine's own: logged by the loop with its trace
            self._words.put(EngineLost(f"{type(error).__name__}: {error}"))
        finally:
            self._ended.set()

    def _lost_admission(self, error: Exception) -> None:
        """It is not told of anything again: what waits would wait for ever, so whoever started us must hear of it."""
        self._no_admission = f"{self._spec.group_id} cannot reach admission: {str(error) or type(error).__name__}"
        log.error("%s", self._no_admission)
        self._ended.set()


def _ends(farewell: Farewell) -> list[TokenEvent]:
    """The last event of every choice of a request that never reached an engine."""
    return [
        TokenEvent(request_id=farewell.request_id, choice=choice, finish=farewell.finish, error=farewell.error)
        for choice in range(farewell.choices)
    ]
