"""Tables of kernels as rows by the hour: what grew, each thing in one row."""

from __future__ import annotations

from collector.tracer.layout import Kernel
from collector.tracer.process import OTHER_NAME
from collector.tracer.profiles import UNNAMED, Profile
from warehouse.contract.model import KernelProfile

HOUR = 3600.0


def kernel(name: bytes | None, launches: int, *, name_hash: int = 1, grid: int = 8) -> Kernel:
    return Kernel(name_hash, name, (grid, min(grid, 1), min(grid, 1)), (32, 1, 1), 16, 0, launches, 10 * launches, 10)


def rows(profile: Profile, at: float, *kernels: Kernel) -> list[tuple[str, int, str | None]]:
    found = profile.rows(at, "job", list(kernels), {})
    return [(one.kernel_name, one.launch_count, one.grid) for one in found if isinstance(one, KernelProfile)]


def test_an_hour_tells_what_grew_within_it_and_tells_it_again_only_when_it_has_grown() -> None:
    profile = Profile("p", began_before=False)
    assert rows(profile, 10.0, kernel(b"add", 5)) == [("add", 5, "8x1x1")]
    assert rows(profile, 20.0, kernel(b"add", 5)) == []
    assert rows(profile, 30.0, kernel(b"add", 7)) == [("add", 7, "8x1x1")]
    assert rows(profile, HOUR + 1, kernel(b"add", 9)) == [("add", 2, "8x1x1")]


def test_kernels_that_look_alike_are_one_row() -> None:
    """Without it the store, which keeps the last row of a key, would lose all but one."""
    profile = Profile("p", began_before=False)
    cut = [kernel(b"n" * 1024, 3, name_hash=1), kernel(b"n" * 1024, 4, name_hash=2)]
    nameless = [kernel(None, 1, name_hash=number) for number in range(3, 8)]
    assert rows(profile, 10.0, *cut, *nameless) == [("n" * 1024, 7, "8x1x1"), (UNNAMED, 5, "8x1x1")]
    assert rows(profile, HOUR, cut[0], kernel(b"n" * 1024, 6, name_hash=2)) == [("n" * 1024, 2, "8x1x1")]


def test_kernels_beyond_the_table_are_a_row_without_configuration() -> None:
    (row,) = Profile("p", began_before=False).rows(10.0, "job", [kernel(OTHER_NAME, 20, grid=0)], {})
    assert isinstance(row, KernelProfile)
    assert (row.kernel_name, row.launch_count, row.grid, row.block) == ("(other kernels)", 20, None, None)
    assert (row.registers_per_thread, row.shared_memory_bytes) == (None, None)
