from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from collector.tracer import layout
from collector.tracer.library import LIBRARY_NAME, library_path
from tests.collector.tracer.testbed import TRACER, ZIG

HEADER_TEXT = (TRACER / "layout.h").read_text(encoding="utf-8")
STRUCTS = {
    "tracer_lost": layout.Lost._fields,
    "tracer_second": layout.Second._fields,
    "tracer_bucket": layout.Bucket._fields,
    "tracer_device": layout.DeviceTotals._fields,
    "tracer_header": layout.Header._fields,
}


def _c_fields(name: str) -> list[str]:
    (body,) = re.findall(rf"struct {name} \{{\n(.*?)\n\}};", HEADER_TEXT, re.DOTALL)
    code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    declarations = [re.sub(r"^\s*(struct \w+|\w+)\s+", "", line.strip()) for line in code.split(";") if line.strip()]
    return [re.sub(r"\[.*?\]", "", field).strip() for line in declarations for field in line.split(",")]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Ask the C compiler for every offset, size and constant."""
    folder: Path = tmp_path_factory.mktemp("layout")
    wanted = [f"offsetof(struct {name}, {field})" for name in STRUCTS for field in _c_fields(name)]
    wanted += [f"sizeof(struct {name})" for name in [*STRUCTS, "tracer_kernel", "tracer_region"]]
    wanted += [f"offsetof(struct tracer_region, {field})" for field in ("seconds", "devices", "kernels", "names")]
    wanted += re.findall(r"\bTRACER_[A-Z0-9_]+\b(?= =)", HEADER_TEXT)
    prints = "\n".join(f'printf("{text} = %llu\\n", (unsigned long long)({text}));' for text in wanted)
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "layout.h"\nint main(void) {{ {prints} return 0; }}\n'
    (folder / "numbers.c").write_text(source)
    command = [*ZIG, f"-I{TRACER}", str(folder / "numbers.c"), "-o", str(folder / "numbers")]
    subprocess.run(command, check=True, capture_output=True)
    text = subprocess.run([str(folder / "numbers")], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split(" = ") for line in text.splitlines())}


@pytest.mark.parametrize("name", STRUCTS)
def test_each_structure_has_the_fields_of_the_c_header_in_order(name: str) -> None:
    fields = [field for field in STRUCTS[name] if (name, field) != ("tracer_bucket", "slots")]
    expected = [field for field in _c_fields(name) if field not in {"slots", "buckets"}]
    assert fields == expected


@pytest.mark.parametrize("name", STRUCTS)
def test_each_field_is_read_from_its_offset(name: str, numbers: dict[str, int]) -> None:
    """A structure whose bytes tell their own place: a field read from the wrong place has the wrong value."""
    parse = {
        "tracer_lost": lambda content: layout.Lost(*layout._LOST.unpack_from(content)),
        "tracer_second": lambda content: layout.Second(*layout._SECOND.unpack_from(content)),
        "tracer_bucket": lambda content: layout.parse_bucket(content)[0],
        "tracer_device": layout.parse_device,
        "tracer_header": layout.parse_header,
    }[name]
    size = numbers[f"sizeof(struct {name})"]
    for field in STRUCTS[name]:
        if field in {"lost", "uuid", "boot_id"}:
            continue  # no numbers; other tests read them
        offset = numbers[f"offsetof(struct {name}, {field})"]
        content = bytearray(size)
        content[offset] = 77
        value = getattr(parse(content), field)
        assert (value[0] if isinstance(value, tuple) else value) == 77, field


def test_sizes_and_offsets_are_those_of_the_c_header(numbers: dict[str, int]) -> None:
    assert numbers["sizeof(struct tracer_header)"] == layout.HEADER_BYTES
    assert numbers["sizeof(struct tracer_lost)"] == layout._LOST.size
    assert numbers["sizeof(struct tracer_second)"] == layout.SECOND_BYTES
    assert numbers["sizeof(struct tracer_bucket)"] == layout.BUCKET_BYTES
    assert numbers["sizeof(struct tracer_device)"] == layout.DEVICE_BYTES
    assert numbers["sizeof(struct tracer_kernel)"] == layout.KERNEL_BYTES
    assert numbers["sizeof(struct tracer_region)"] == layout.TOTAL_BYTES
    for part in ("seconds", "devices", "kernels", "names"):
        assert numbers[f"offsetof(struct tracer_region, {part})"] == getattr(layout, f"{part.upper()}_OFFSET")


def test_constants_are_those_of_the_c_header(numbers: dict[str, int]) -> None:
    ours = {name: value for name, value in vars(layout).items() if name.isupper() and isinstance(value, int)}
    shared = {name.removeprefix("TRACER_"): value for name, value in numbers.items() if name.startswith("TRACER_")}
    shared = {name: value for name, value in shared.items() if name != "NAME_BYTES_MAX"}
    states = {f"STATE_{name}": shared.pop(name) for name in ("STARTING", "ARMED", "LOST", "PAUSED", "FAILED", "ENDED")}
    assert {name: ours[name] for name in shared | states} == shared | states


def test_a_header_of_another_version_or_size_is_not_ours() -> None:
    content = bytearray(layout.HEADER_BYTES)
    assert not layout.is_ours(layout.parse_header(content))


def test_a_name_that_points_outside_the_names_is_absent() -> None:
    content = bytearray(layout.TOTAL_BYTES - layout.KERNELS_OFFSET)
    for number, (offset, size) in enumerate([(0, 4), (layout.NAMES_BYTES - 1, 4), (2**32 - 1, 2**32 - 1), (0, 0)]):
        layout._KERNEL.pack_into(content, number * layout.KERNEL_BYTES, 1, offset, size, *[1] * 8, 1, 1, 1)
    assert [kernel.name for kernel in layout.parse_kernels(content, 10_000)][:4] == [b"\0" * 4, None, None, None]


def test_a_write_under_way_is_waited_for_and_then_given_up() -> None:
    content = bytearray(64)
    content[24] = 1
    assert layout.read_together(memoryview(content), [layout.Span(0, 8)], attempts=3) is None
    content[24] = 2
    assert layout.read_together(memoryview(content), [layout.Span(24, 1), layout.Span(0, 2)]) == [b"\2", b"\0\0"]


def test_the_library_lies_beside_its_sources_by_architecture() -> None:
    assert library_path("aarch64") == TRACER / "lib" / "aarch64" / LIBRARY_NAME
