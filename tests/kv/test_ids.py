"""The pools of page ids and arena slots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv import ArenaSlots, KVCorruption, PagePool, PageTable, pages_for


def test_a_fresh_pool_hands_out_ids_from_zero() -> None:
    pool = PagePool(5)
    assert pool.allocate(3) == (0, 1, 2)
    assert (pool.num_pages, pool.num_free, pool.num_owned) == (5, 2, 3)


def test_the_ids_given_back_last_are_taken_first_in_the_same_order() -> None:
    pool = PagePool(6)
    first, second = pool.allocate(2), pool.allocate(3)
    assert first is not None and second is not None
    pool.free(first)
    pool.free(second)
    assert pool.allocate(6) == (2, 3, 4, 0, 1, 5)


def test_too_many_wanted_takes_nothing() -> None:
    pool = PagePool(3)
    assert pool.allocate(4) is None
    assert pool.num_free == 3
    assert pool.allocate(0) == ()
    assert pool.allocate(3) == (0, 1, 2)
    assert pool.allocate(1) is None


def test_an_id_given_back_twice_is_corruption() -> None:
    pool = PagePool(2)
    ids = pool.allocate(1)
    assert ids == (0,)
    pool.free(ids)
    with pytest.raises(KVCorruption, match="page 0 is free; it can't become free"):
        pool.free(ids)


@pytest.mark.parametrize("stranger", [-1, 4])
def test_an_id_outside_the_pool_is_corruption(stranger: int) -> None:
    pool = PagePool(4)
    with pytest.raises(KVCorruption, match=rf"page {stranger} is not in \[0, 4\)"):
        pool.free((stranger,))


def test_what_is_being_copied_cannot_be_given_back_until_the_copy_lands() -> None:
    arena = ArenaSlots(3)
    slots = arena.allocate(2)
    assert slots == (0, 1)
    arena.begin_copy(slots)
    with pytest.raises(KVCorruption, match="arena slot 1 is being copied"):
        arena.free((1,))
    arena.check_integrity([slots])
    arena.end_copy(slots)
    arena.free(slots)
    assert arena.num_free == arena.num_slots == 3


def test_a_free_id_cannot_be_copied() -> None:
    with pytest.raises(KVCorruption, match="page 0 is free; it can't become being copied"):
        PagePool(1).begin_copy((0,))


def test_a_pool_of_fewer_than_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more pages, not -1"):
        PagePool(-1)


@pytest.mark.parametrize(
    ("owners", "complaint"),
    [
        ([(0, 1), (1, 2)], "page 1 has two owners"),
        ([(0, 1, 2), (3,)], "page 3 has an owner and is free"),
        ([(0, 1)], "2 pages owned \\+ 1 free are not 4 in all"),
    ],
)
def test_integrity_names_what_is_wrong(owners: list[tuple[int, ...]], complaint: str) -> None:
    pool = PagePool(4)
    pool.allocate(3)
    pool.check_integrity([(0, 2), (1,)])
    with pytest.raises(KVCorruption, match=complaint):
        pool.check_integrity(owners)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60))
def test_every_id_has_one_owner_whatever_is_taken_and_given_back(moves: list[tuple[bool, int]]) -> None:
    pool, held = PagePool(16), dict[int, tuple[int, ...]]()
    for turn, (take, count) in enumerate(moves):
        if take:
            ids = pool.allocate(count)
            assert (ids is None) == (count > 16 - sum(map(len, held.values())))
            if ids is not None:
                assert len(ids) == count
                held[turn] = ids
        elif held:
            pool.free(held.pop(sorted(held)[count % len(held)]))
        pool.check_integrity(held.values())


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2), (1000, 63)])
def test_a_begun_page_counts_whole(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 16) == pages


def test_a_table_takes_a_page_only_at_a_border() -> None:
    pool, table = PagePool(8), PageTable(4)
    assert table.grow(pool, 5) == (0, 1)
    assert table.grow(pool, 8) == ()
    assert table.grow(pool, 9) == (2,)
    assert (table.page_ids, table.num_pages, table.num_slots) == ((0, 1, 2), 3, 12)


def test_a_table_that_cannot_grow_is_unchanged() -> None:
    pool, table = PagePool(3), PageTable(4)
    table.grow(pool, 8)
    assert table.grow(pool, 17) is None
    assert (table.page_ids, pool.num_free) == ((0, 1), 1)


def test_a_released_table_gives_every_page_back_and_starts_anew() -> None:
    pool, table = PagePool(3), PageTable(4)
    table.grow(pool, 12)
    assert table.release(pool) == 3
    assert (table.num_pages, table.num_slots, pool.num_free) == (0, 0, 3)
    assert table.grow(pool, 1) == (0,)


def test_a_table_that_borrows_gives_back_only_its_own_pages() -> None:
    pool, lent = PagePool(6), PageTable(4)
    lent.grow(pool, 9)
    shared = lent.cede(2)
    assert (shared, lent.page_ids, lent.own_ids, lent.num_own) == ((0, 1), (0, 1, 2), (2,), 1)
    table = PageTable(4)
    table.borrow(shared)
    assert (table.num_slots, table.num_pages, table.num_own) == (8, 2, 0)
    assert table.grow(pool, 9) == (3,)
    pool.check_integrity([shared, lent.own_ids, table.own_ids])
    assert (table.release(pool), table.page_ids, table.num_borrowed) == (1, (), 0)
    assert (lent.release(pool), pool.num_owned) == (1, 2)
    pool.check_integrity([shared])
    pool.free(shared)
    assert pool.num_free == 6


def test_a_table_can_cede_more_of_what_it_computed_later() -> None:
    pool, table = PagePool(6), PageTable(4)
    table.grow(pool, 8)
    assert table.cede(1) == (0,)
    table.grow(pool, 16)
    assert table.cede(2) == (1, 2)
    assert (table.num_borrowed, table.own_ids) == (3, (3,))
