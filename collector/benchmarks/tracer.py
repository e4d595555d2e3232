"""What the tracer costs per record and step, whether its union is exact, its memory, and what reading it costs."""

from __future__ import annotations

import dataclasses

from collector.benchmarks._traced import measure_reading
from collector.tracer.bench import measure
from warehouse.contract.benchmark import Bar, Benchmark, BenchRequest, BenchResult, at_most

RECORDS = 1_000_000
RECORDS_FULL = 4_000_000
STREAMS = 4
RATIO_BAR = 600.0
"""The callback against a walk over the same records: a walk takes about a nanosecond, the callback may take 300."""

RESIDENT_BYTES_MAX = 6_000_000
READING_MILLISECONDS_MAX = 1.0
"""CPU of the agent per traced process and second: a tenth of a percent of a core."""

READ_PROCESSES, READ_ROUNDS, READ_ROUNDS_FULL = 8, 10, 30


def run(request: BenchRequest) -> BenchResult:
    """Feed the tracer kernels of four streams, as fast as it takes them (``full``: a million on each); read others."""
    figures = measure(RECORDS_FULL if request.full else RECORDS, STREAMS)
    reading = measure_reading(READ_PROCESSES, READ_ROUNDS_FULL if request.full else READ_ROUNDS)
    bars = [
        Bar(
            "difference from the exact union, ns",
            float(figures.difference_nanoseconds),
            "0",
            holds=figures.difference_nanoseconds == 0,
        ),
        at_most("callback against an empty callback that walks the records", figures.callback_to_walk_ratio, RATIO_BAR),
        at_most("resident memory, bytes", float(figures.resident_bytes), RESIDENT_BYTES_MAX),
        at_most("buffers refused", float(figures.refused_buffers_count), 0),
        at_most(
            "the agent's CPU per traced process and second, ms",
            reading.cpu_milliseconds_per_process_second,
            READING_MILLISECONDS_MAX,
        ),
    ]
    return BenchResult(
        dataclasses.asdict(figures) | {"reading": dataclasses.asdict(reading)},
        bars,
        not_shown=[
            "CUPTI's own cost, on the launching thread and beside it: that needs a GPU (`trueload agent calibrate`)",
            "a real driver's records: they are a stand-in's, 2 to 8 us long with a quarter of the time between them",
            "300 ns per record is what the callback may take on an idle machine; the bar is a ratio, for busy ones",
        ],
    )


BENCHMARK = Benchmark(
    name="tracer",
    description="What the tracer costs per record, that its union is exact, its memory, and what reading it costs.",
    run=run,
    needs_sources=False,
)
