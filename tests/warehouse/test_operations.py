"""What an operator expects of a running server: TLS, logs, metrics, a full disk, Arrow batches, a quiet end."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
import urllib3

from tests.warehouse.serving import ServerProcess
from tests.warehouse.test_server import Running
from warehouse import access, batches, logs, tls
from warehouse.arrow import COLUMN_TYPES, to_arrow
from warehouse.arrow_batches import decode_arrow, encode_arrow
from warehouse.client import find_server
from warehouse.contract import model, wire
from warehouse.contract.errors import BadInputError, BadUseError, StoreError
from warehouse.contract.settings import Settings
from warehouse.web import ARROW


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give one running server for the module."""
    server = Running(tmp_path_factory.mktemp("data"))
    yield server
    server.stop()


def rows() -> dict[str, wire.Table]:
    """Give two samples, one with an impossible value, and a node."""
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [1.5, 11.5],
        "driver_util_ratio": [0.25, 7.0],
    }
    return {"device_sample": wire.Table(2, columns), **wire.from_records([model.Node("c", "n", 1.0)])}


def named(sequence: int) -> wire.Batch:
    """Give a batch without rows."""
    return wire.Batch("n", "boot", sequence, 1.0, {})


def arrow_body(sequence: int = 1) -> bytes:
    """Give the rows as Arrow."""
    return encode_arrow(named(sequence), {name: to_arrow(name, table) for name, table in rows().items()})


# ------------------------------------------------------------------------------------------------------ Arrow


def test_a_batch_in_arrow_is_checked_and_written_as_in_json() -> None:
    batch, tables = decode_arrow(arrow_body(7))
    by_arrow = batches.check_arrow(batch, tables)
    by_json = batches.check(wire.Batch("n", "boot", 7, 1.0, rows()))
    assert (
        (by_arrow.name, by_arrow.rejected)
        == (by_json.name, by_json.rejected)
        == (("n", "boot", 7, 0), {"driver_util_ratio": 1})
    )
    assert {name: table.to_pylist() for name, table in by_arrow.tables.items()} == {
        name: table.to_pylist() for name, table in by_json.tables.items()
    }


def test_a_server_takes_arrow_plain_and_gzipped_and_knows_it_again(running: Running) -> None:
    headers = {"Authorization": f"Bearer {running.tokens.by_role[access.Role.AGENT]}", "Content-Type": ARROW}
    for body, duplicate in ((arrow_body(3), False), (gzip.compress(arrow_body(3)), True)):
        answer = urllib3.request("POST", f"{running.url}/v1/batches", headers=headers, body=body, retries=False)
        told = json.loads(answer.data)
        assert (answer.status, told["duplicate"]) == (200, duplicate)


def stream(rows: pa.Table, /, options: pa.ipc.IpcWriteOptions | None = None, **marks: str) -> bytes:
    """Give an IPC stream with marks in its schema."""
    heads = {"version": "1", "agent": "n", "boot_id": "b", "sequence": "1", "part": "0", "sent_at": "1"}
    sink = pa.BufferOutputStream()
    marked = rows.replace_schema_metadata({**heads, "table": "node", **marks})
    with pa.ipc.new_stream(sink, marked.schema, options=options) as writer:
        writer.write_table(marked)
    return bytes(sink.getvalue())


def unverified(whole: bytes) -> bytes:
    """Give a stream whose first message does not say of what kind its header is: Arrow leaves such a one unverified."""
    metadata = bytes(pa.ipc.read_message(pa.BufferReader(whole)).metadata)
    root = int.from_bytes(metadata[:4], "little")
    layout = root - int.from_bytes(metadata[root : root + 4], "little", signed=True)
    kind = root + int.from_bytes(metadata[layout + 6 : layout + 8], "little")
    assert metadata[kind] == 1, "a schema"
    return whole.replace(metadata, metadata[:kind] + b"\0" + metadata[kind + 1 :])


NODE = to_arrow("node", rows()["node"])
HOSTILE = {
    "nothing": b"",
    "noise": b"\xff" * 100,
    "cut": stream(NODE)[:-20],
    "half": stream(NODE)[: len(stream(NODE)) // 2],
    "trailing noise": stream(NODE) + b"x" * 9,
    "compressed": stream(NODE, pa.ipc.IpcWriteOptions(compression="zstd")),
    "version": stream(NODE, version="2"),
    "no sequence": stream(NODE, sequence="x"),
    "negative": stream(NODE, sequence="-1"),
    "no agent": stream(NODE, agent=""),
    "unknown table": stream(NODE, table="credential"),
    "imports": stream(
        to_arrow("import_record", wire.Table(1, {"record_key": "k", "content_hash": 1})), table="import_record"
    ),
    "twice": stream(NODE) + stream(NODE),
    "unknown column": stream(NODE.append_column("evil", pa.nulls(1))),
    "text for a number": stream(NODE.set_column(4, "gpu_count", pa.array(["8"]))),
    "number for a text": stream(NODE.set_column(0, "cluster", pa.array([8]))),
    "nothing required": stream(NODE.drop_columns(["cluster"])),
    "year 300000": stream(NODE.set_column(2, "since_at", pa.array([1e13]))),
    "no instant": stream(NODE.set_column(2, "since_at", pa.array(["today"]))),
    "unpacks to too much": gzip.compress(b"\0" * (wire.MAX_PLAIN_BYTES + 1), compresslevel=1),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_arrow_that_is_no_batch_is_refused(body: bytes) -> None:
    def take() -> None:
        batches.check_arrow(*decode_arrow(body))

    with pytest.raises(BadInputError):
        take()


def test_a_message_of_no_kind_is_refused_before_its_header_is_read() -> None:
    with pytest.raises(BadInputError, match="a message of type unknown"):
        decode_arrow(unverified(stream(NODE)))


def test_many_rows_in_few_bytes_are_refused_before_they_are_unpacked() -> None:
    with pytest.raises(BadInputError, match="at most 1000000 are taken"):
        decode_arrow(stream(pa.table({"gpu_count": pa.nulls(wire.MAX_ROWS + 1)})))


def test_arrow_with_any_byte_changed_is_read_or_refused_and_never_breaks() -> None:
    whole = arrow_body()
    for at in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        try:
            _, tables = decode_arrow(bytes(damaged))
        except BadInputError:
            continue
        assert all(table.schema.names == list(COLUMN_TYPES[name]) for name, table in tables.items())


# ------------------------------------------------------------------------------------------------- metrics, logs


def test_promtool_finds_nothing_wrong_with_the_metrics(running: Running) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs Debian package prometheus")
    running.post("/v1/batches", wire.encode(wire.Batch("n", "other", 1, 1.0, rows())))
    headers = {"Authorization": f"Bearer {running.tokens.by_role[access.Role.OPERATOR]}"}
    text = urllib3.request("GET", f"{running.url}/metrics", headers=headers, retries=False).data
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    found = dict(line.rsplit(" ", 1) for line in text.decode().splitlines() if not line.startswith("#"))
    assert float(found['trueload_server_batches_total{outcome="new"}']) >= 1
    assert float(found["trueload_server_rejected_values_total"]) >= 1
    assert float(found["trueload_server_commit_seconds_count"]) >= 1
    assert float(found["trueload_server_senders"]) == 1
    assert b'node="' not in text


def test_a_json_log_is_one_object_a_line_whatever_the_message_holds() -> None:
    record = logging.LogRecord("trueload.x", logging.WARNING, "", 0, "of %s", ('a"\n{"level": "DEBUG"}',), None)
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["message"]) == ("WARNING", 'of a"\n{"level": "DEBUG"}')


def test_an_unknown_log_format_is_refused() -> None:
    with pytest.raises(BadUseError, match="there are text and json"):
        logs.configure("xml")


# ---------------------------------------------------------------------------------------------------------- TLS


@dataclass
class Certificates:
    """A server's certificate, an authority for nodes, and the certificate of node n."""

    settings: dict[str, str]
    server_ca: Path
    node: Path
    stranger: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make certificates."""
    folder = tmp_path_factory.mktemp("tls")
    site, nodes, other = trustme.CA(), trustme.CA(), trustme.CA()
    server = site.issue_cert("127.0.0.1")
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")
    site.cert_pem.write_to_path(folder / "site.pem")
    nodes.cert_pem.write_to_path(folder / "nodes.pem")
    for name, authority in (("node", nodes), ("stranger", other)):
        authority.issue_cert("n.example", common_name="n").private_key_and_cert_chain_pem.write_to_path(
            folder / f"{name}.pem"
        )
    settings = {
        "TRUELOAD_SERVER__CERTIFICATE_FILE": str(folder / "server.pem"),
        "TRUELOAD_SERVER__KEY_FILE": str(folder / "server.key"),
        "TRUELOAD_SERVER__CLIENT_CA_FILE": str(folder / "nodes.pem"),
        "TRUELOAD_SERVER__LOG_FORMAT": "json",
    }
    return Certificates(settings, folder / "site.pem", folder / "node.pem", folder / "stranger.pem")


@pytest.fixture(scope="module")
def secured(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Give a real server that speaks TLS."""
    server = ServerProcess(tmp_path_factory.mktemp("secured") / "data", variables=certificates.settings)
    yield server
    server.stop()


def post_as(server: ServerProcess, certificates: Certificates, shown: Path | None, body: bytes) -> int:
    """Post a batch with a certificate and no token."""
    context = ssl.create_default_context(cafile=certificates.server_ca)
    if shown is not None:
        context.load_cert_chain(shown)
    with urllib3.PoolManager(ssl_context=context, retries=False) as pool:
        return pool.request("POST", f"{server.url}/v1/batches", body=body).status


def test_commands_on_the_same_machine_know_the_server_by_its_certificate(secured: ServerProcess) -> None:
    assert secured.url.startswith("https://")
    client = find_server(secured.data)
    assert client is not None
    assert client.ask("jobs", {})["total"] == 0
    client.close()


def test_a_nodes_certificate_stands_for_its_token_and_for_that_node_alone(
    secured: ServerProcess, certificates: Certificates
) -> None:
    own = wire.encode(wire.Batch("n", "boot", 1, 1.0, wire.from_records([model.Node("c", "n", 1.0)])))
    foreign = wire.encode(wire.Batch("n", "boot", 2, 1.0, wire.from_records([model.Node("c", "m", 1.0)])))
    assert post_as(secured, certificates, certificates.node, own) == 200
    assert post_as(secured, certificates, certificates.node, foreign) == 403
    assert post_as(secured, certificates, None, own) == 401


def test_a_certificate_of_another_authority_opens_nothing(secured: ServerProcess, certificates: Certificates) -> None:
    with pytest.raises((urllib3.exceptions.HTTPError, OSError)):
        post_as(secured, certificates, certificates.stranger, b"")


@pytest.mark.parametrize(
    "values",
    [
        {"server.certificate_file": "/none.pem"},
        {"server.certificate_file": "/none.pem", "server.key_file": "/none.key"},
        {"server.client_ca_file": "/none.pem"},
    ],
)
def test_certificates_that_cannot_be_used_are_said_before_anything_starts(values: dict[str, str]) -> None:
    with pytest.raises(StoreError):
        tls.chosen(Settings(values))


# -------------------------------------------------------------------------------------------------- a full disk

FILL = """
import json, os, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from warehouse import batches
from warehouse.committer import Committer
from warehouse.contract import model, wire
from warehouse.contract.errors import StoreError
from warehouse.contract.settings import Settings
from warehouse.store import open_store

disk = Path(sys.argv[1])
columns = {"cluster": "c", "node": "n", "device_uuid": "GPU-1", "cadence_seconds": 10.0, "source": "nvml"}
store = open_store(disk / "data", create=True, recover=True)
sequence, kept = 0, 0

def send(committer, rows):
    global sequence, kept
    sequence += 1
    times = [float(sequence * 100_000 + at) for at in range(rows)]
    table = wire.Table(rows, {**columns, "sampled_at": times, "power_watts": [at * 1.7 for at in times]})
    result = committer.submit(batches.check(wire.Batch("n", "b", sequence, 0.0, {"device_sample": table}))).result()
    kept += result.rows

def count():
    return store.read("SELECT count(*) AS n FROM device_sample").to_pylist()[0]["n"]

with Committer(store, disk, Settings({"store.free_space_floor_bytes": FLOOR})) as committer:
    send(committer, 1000)
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        free = shutil.disk_usage(disk).free
        os.posix_fallocate(file.fileno(), 0, free - 4096 * LEFT)
    refused = 0
    for _ in range(12):
        try:
            send(committer, 60_000)
        except StoreError:
            refused += 1
        assert count() == kept, "reads go on"
    assert refused > 0, "the disk was not full"
    ballast.unlink()
    send(committer, 1000)
    assert count() == kept, "writes resume"
store.close()
again = open_store(disk / "data")
assert again.read("SELECT count(*) AS n FROM device_sample").to_pylist()[0]["n"] == kept
print(json.dumps({"refused": refused, "kept": kept}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("floor", "left"), [(16 * 2**20, 1), (0, 2000), (0, 1)])
def test_on_a_full_disk_of_64_mb_reads_go_on_and_writes_resume(
    tmp_path: Path, repository: Path, floor: int, left: int
) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root, to mount a small disk")
    script = tmp_path / "fill.py"
    script.write_text(FILL.replace("FLOOR", str(floor)).replace("LEFT", str(left)))
    (tmp_path / "disk").mkdir()
    shell = 'mount -t tmpfs -o size=64m small "$1" && exec "$2" "$3" "$1" "$4"'
    command = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        shell,
        "sh",
        *map(str, (tmp_path / "disk", sys.executable, script, repository)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
        pytest.skip("needs the right to mount a small disk")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["refused"] > 0
