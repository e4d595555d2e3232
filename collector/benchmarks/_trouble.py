"""A node in trouble: eight stand-in cards to which something random goes wrong all the time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from collector.benchmarks._cards import GIB, card
from collector.simulate import layout
from collector.simulate.standin import (
    NEVER_RETURNS,
    StandinDevice,
    StandinEvent,
    StandinFault,
    StandinInstance,
    StandinProcess,
    StandinState,
)

CARDS: Final = 8
TICK_SECONDS: Final = 0.1
CALLS: Final = tuple(sorted(layout.FAULTABLE_CALLS))
CODES: Final = (0, 2, 3, 4, 6, 7, 10, 13, 17, 21, 25, 27, 999)
"""Return codes that cost one call, of NVML's (nvml.h, ``nvmlReturn_t``); unknown ones among them."""

LOST: Final = (15, 16)
GONE: Final = (1, 9, 18)
"""The codes of a driver that has to be opened anew."""

IMPOSSIBLE: Final[tuple[tuple[str, float], ...]] = (
    ("driver_util_ratio", 42_949_672.95),
    ("memory_used_bytes", 2**64 - 1),
    ("power_watts", 4_294_967.295),
    ("temperature_celsius", -(2**31)),
    ("energy_joules", 0.0),
    ("sm_clock_hertz", 4.2e15),
)
Change = Callable[[StandinDevice], StandinDevice]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is wrong with one card until an instant of the monotonic clock."""

    kind: str
    card: int
    until: float
    change: Change


def _fault(draw: random.Random) -> Change:
    fault = StandinFault(draw.choice(CALLS), draw.choice(CODES))
    return lambda known: replace(known, faults=(*known.faults, fault))


def _hang(draw: random.Random) -> Change:
    fault = StandinFault(draw.choice(CALLS), NEVER_RETURNS)
    return lambda known: replace(known, faults=(*known.faults, fault))


def _code_of_loss(draw: random.Random) -> Change:
    fault = StandinFault(draw.choice(CALLS), draw.choice(LOST))
    return lambda known: replace(known, faults=(*known.faults, fault))


def _driver_gone(draw: random.Random) -> Change:
    fault = StandinFault("nvmlDeviceGetMemoryInfo_v2", draw.choice(GONE))
    other = StandinFault("nvmlDeviceGetUtilizationRates", fault.return_code)
    return lambda known: replace(known, faults=(*known.faults, fault, other))


def _lost(_draw: random.Random) -> Change:
    return lambda known: replace(known, lost=True)


def _impossible(draw: random.Random) -> Change:
    name, value = draw.choice(IMPOSSIBLE)
    return lambda known: replace(known, **{name: value})  # type: ignore[arg-type]


def _strangers(draw: random.Random) -> Change:
    pids = draw.sample(range(2**22, 2**31), 30)
    garbage = tuple(StandinProcess(pid, None, draw.choice((0.1, 1.0, 655.35))) for pid in pids)
    return lambda known: replace(known, processes=garbage)


def _instances(_draw: random.Random) -> Change:
    def split(known: StandinDevice) -> StandinDevice:
        of = known.uuid.removeprefix("GPU-")
        parts = tuple(StandinInstance(f"MIG-{of}-{n}", "MIG 3g.40gb", n, 40 * GIB, GIB) for n in (1, 2))
        return replace(known, instances=(parts[0], None, parts[1]))

    return split


KINDS: Final[dict[str, tuple[int, Callable[[random.Random], Change]]]] = {
    "a call fails": (8, _fault),
    "a call never returns": (3, _hang),
    "a call says the device is lost": (2, _code_of_loss),
    "the device is lost": (2, _lost),
    "the driver is gone": (1, _driver_gone),
    "values that cannot be true": (4, _impossible),
    "processes that nobody knows": (2, _strangers),
    "cut into instances": (1, _instances),
}
"""What can go wrong with a card, and how often beside the others."""


class TroubledNode:
    """Writes the state of a node ten times a second, and has things go wrong while told to."""

    def __init__(self, state: StandinState, seed: int, pids: Callable[[], Sequence[int]]) -> None:
        """Take the state to write; ``pids`` gives the processes that exist now."""
        self.counts: Counter[str] = Counter()
        """What went wrong, how often."""
        self.every_seconds = 0.5
        """On average so long until something goes wrong with one of the cards."""
        self._state = state
        self._draw = random.Random(seed)  # noqa: S311 - a run repeats itself from its seed
        self._pids = pids
        self._begun = time.monotonic()
        self._wrong: list[Trouble] = []
        self._events: list[tuple[StandinEvent, ...]] = [()] * CARDS
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._is_on = threading.Event()
        self._thread = threading.Thread(target=self._work, name="trouble", daemon=True)

    def start(self) -> None:
        """Begin to write, without trouble."""
        self._thread.start()

    def trouble(self, *, on: bool) -> None:
        """Have things go wrong from now on, or be all right at once."""
        if on:
            self._is_on.set()
            return
        self._is_on.clear()
        with self._guard:
            self._wrong = []
            self._write()

    def add(self, kind: str, card_number: int, seconds: float) -> None:
        """Have one thing go wrong, now."""
        change = KINDS[kind][1](self._draw)
        with self._guard:
            self.counts[kind] += 1
            self._wrong.append(Trouble(kind, card_number, time.monotonic() + seconds, change))
            self._write()

    def close(self) -> None:
        """Write no more; the last state is one without trouble."""
        self._stop.set()
        self._thread.join()
        self.trouble(on=False)

    def _work(self) -> None:
        chance = TICK_SECONDS / self.every_seconds
        while not self._stop.wait(TICK_SECONDS):
            with self._guard:
                now = time.monotonic()
                self._wrong = [one for one in self._wrong if one.until > now]
                for place in range(CARDS) if self._is_on.is_set() else ():
                    if self._draw.random() < chance / CARDS:
                        self._go_wrong(place, now)
                self._write()

    def _go_wrong(self, place: int, now: float) -> None:
        kinds, weights = tuple(KINDS), [weight for weight, _ in KINDS.values()]
        kind = self._draw.choices(kinds, weights)[0]
        self.counts[kind] += 1
        self._wrong.append(Trouble(kind, place, now + self._draw.uniform(0.2, 4.0), KINDS[kind][1](self._draw)))
        if self._draw.random() < 0.5:  # noqa: PLR2004 - every other time the driver tells of it, too
            self._events[place] = (*self._events[place], StandinEvent(8, self._draw.choice((31, 48, 79))))

    def _write(self) -> None:
        seconds, pids = time.monotonic() - self._begun, self._pids()
        cards = []
        for place in range(CARDS):
            own = [StandinProcess(pid, GIB, 0.2) for pid in pids[place::CARDS]]
            known = replace(card(place, seconds, own), events=self._events[place])
            for trouble in self._wrong:
                if trouble.card == place and len(known.faults) < layout.FAULTS_MAX - 1:
                    known = trouble.change(known)
            cards.append(known)
        self._state.write(cards)
