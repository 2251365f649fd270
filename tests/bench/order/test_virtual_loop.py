"""Virtual time: waiting costs none, order is kept, and a wait for nothing is an error."""

import asyncio
import time

import pytest

from bench.order.virtual_loop import NothingDue, run_virtual


def test_an_hour_passes_at_once_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        seen = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, asyncio.get_running_loop().time()))

        await asyncio.gather(sleeper("late", 3600.0), sleeper("early", 0.5))
        return seen

    started = time.process_time()
    assert run_virtual(main()) == [("early", 0.5), ("late", 3600.0)]
    assert time.process_time() - started < 60.0


def test_a_timeout_comes_in_virtual_time() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10.0):
                await asyncio.sleep(1000.0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 10.0


def test_a_program_that_waits_for_nothing_is_an_error() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingDue, match="0 s of virtual time"):
        run_virtual(main())
