"""Free questions in SQL: what may be asked is on a list, everything else is refused, and limits hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from warehouse import lake, sql
from warehouse.contract import model, wire
from warehouse.contract.errors import BadUseError, StoreError
from warehouse.contract.units import SECONDS_PER_DAY
from warehouse.sql_words import FUNCTIONS
from warehouse.store import Store, open_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Give a store with two jobs, and three samples on two days, the first of which is sealed."""
    data = tmp_path_factory.mktemp("data")
    opened = open_store(data, create=True)
    jobs = [model.Job("c/1#0", "c", "1", "s", user="alice"), model.Job("c/2#0", "c", "2", "s", user="bob")]
    columns: dict[str, wire.Column] = {
        "cluster": "c",
        "node": "n",
        "device_uuid": "GPU-1",
        "cadence_seconds": 10.0,
        "source": "nvml",
        "sampled_at": [0.0, 10.0, SECONDS_PER_DAY],
    }
    with opened.transaction() as transaction:
        transaction.write({**wire.from_records(jobs), "device_sample": wire.Table(3, columns)})
    lake.seal(opened, data, "device_sample", date(1970, 1, 1))
    yield opened
    opened.close()


def ask(store: Store, statement: str, most_rows: int = 1000, most_seconds: float = 20.0) -> sql.Found:
    """Ask with the limits of a test."""
    return sql.ask(store, statement, most_rows=most_rows, most_seconds=most_seconds)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('SELECT "user" FROM job ORDER BY 1', ["alice", "bob"]),
        ("FROM job SELECT count(*)", [2]),
        ("SELECT count(*) FROM device_sample", [3]),
        ("WITH mine AS (SELECT * FROM job) SELECT count(*) FROM mine m JOIN job USING (job_key)", [2]),
        (
            "SELECT max(n) FROM (WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) FROM t)",
            [5],
        ),
        ("SELECT rows FROM (SELECT row_number() OVER (ORDER BY job_key) AS rows FROM job) WHERE rows > 1", [2]),
        ("SELECT sum(x) FROM range(4) AS t(x)", [6]),
        (
            "SELECT CASE WHEN 1 IN (1, 2) AND 'ab' LIKE 'a%' THEN date_trunc('day', DATE '2026-01-02')::VARCHAR END",
            None,
        ),
        ("VALUES (1), (2)", [1, 2]),
        ("SELECT count(*) FROM batch_ledger", [0]),
    ],
)
def test_a_select_over_the_documented_tables_is_answered(
    store: Store, statement: str, expected: list[object] | None
) -> None:
    values = [next(iter(row.values())) for row in ask(store, statement).rows.to_pylist()]
    assert expected is None or values == expected


@pytest.mark.parametrize("statement", ["DELETE FROM job", "SET threads = 1", "ATTACH '/tmp/x' AS x"])
def test_what_is_no_select_is_refused_in_words_of_our_own(store: Store, statement: str) -> None:
    with pytest.raises(BadUseError, match="only a SELECT is run"):
        ask(store, statement)


HOSTILE = [
    "",
    ";",
    "no sql",
    "SELECT 1; SELECT 2",
    "INSERT INTO job SELECT * FROM job",
    "WITH x AS (SELECT 1) INSERT INTO committed SELECT 1",
    "WITH x AS (DELETE FROM job RETURNING *) SELECT * FROM x",
    "UPDATE job SET name = 'x'",
    "DELETE FROM job",
    "DROP TABLE job",
    "CREATE TABLE t AS SELECT 1",
    "COPY job TO '/tmp/x'",
    "COPY (SELECT 1) TO '/tmp/x'",
    "EXPORT DATABASE '/tmp/x'",
    "ATTACH '/tmp/x' AS x",
    "SET threads = 1",
    "PRAGMA table_info('job')",
    "CALL pragma_table_info('job')",
    "CHECKPOINT",
    "LOAD httpfs",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT * FROM job",
    "SHOW TABLES",
    "DESCRIBE job",
    "SUMMARIZE job",
    "SELECT * FROM (DESCRIBE credential)",
    "SELECT * FROM (SHOW ALL TABLES)",
    "SELECT nextval('commit_number')",
    "SELECT currval('commit_number')",
    "SELECT * FROM credential",
    "SELECT token_hash FROM main.credential",
    "SELECT * FROM hot.main.job",
    "SELECT * FROM main.job",
    'SELECT * FROM "CREDENTIAL"',
    "SELECT * FROM tombstone",
    "SELECT * FROM schema_version",
    "SELECT * FROM job WHERE job_key IN (SELECT token_hash FROM credential)",
    "SELECT (SELECT max(token_hash) FROM credential)",
    "SELECT * FROM job ORDER BY (SELECT max(token_hash) FROM credential)",
    "SELECT * FROM job LIMIT (SELECT count(*) FROM credential)",
    "SELECT count(*) FILTER (WHERE EXISTS (FROM credential)) FROM job",
    "SELECT 1 FROM job GROUP BY ALL HAVING EXISTS (FROM credential)",
    "SELECT 1 FROM job QUALIFY row_number() OVER (ORDER BY (SELECT max(token_hash) FROM credential)) = 1",
    "SELECT * FROM job JOIN LATERAL (SELECT * FROM credential WHERE name = job.user) ON true",
    "SELECT * FROM job UNION ALL BY NAME SELECT * FROM credential",
    "SELECT * FROM job POSITIONAL JOIN credential",
    "SELECT list_transform([1], lambda x: (SELECT count(*) FROM credential))",
    "SELECT COLUMNS(c -> c IN (SELECT name FROM credential)) FROM job",
    "WITH credential AS (SELECT 1) SELECT * FROM credential",
    "SELECT * FROM credential, (WITH credential AS (SELECT 1) SELECT * FROM credential)",
    "WITH a AS (SELECT * FROM credential), credential AS (SELECT 1) SELECT * FROM a",
    'WITH RECURSIVE "/etc/passwd" AS (SELECT 1) SELECT * FROM "/etc/passwd"',
    'WITH "x.csv" AS (SELECT 1) SELECT 1 FROM (SELECT * FROM "x.csv")',
    "WITH duckdb_tables AS (SELECT 1) SELECT * FROM duckdb_tables",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM '/etc/passwd.csv'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_csv_auto('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM read_parquet('/x')",
    "SELECT * FROM parquet_metadata('/x')",
    "SELECT * FROM parquet_scan('/x')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM seq_scan('credential')",
    "SELECT * FROM query('SELECT * FROM credential')",
    "SELECT * FROM query_table('credential')",
    "SELECT * FROM pragma_table_info('credential')",
    "SELECT * FROM pragma_storage_info('credential')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_logs()",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM which_secret('x', 's3')",
    "SELECT * FROM json_execute_serialized_sql('{}')",
    "SELECT * FROM sql_auto_complete('x')",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM repeat_row(1, num_rows=1)",
    "SELECT getenv('HOME')",
    "SELECT current_setting('temp_directory')",
    "SELECT getvariable('x')",
    "SELECT write_log('x')",
    "SELECT pg_sleep(1)",
    "SELECT sleep_ms(1000)",
    "SELECT setseed(0.1)",
    "SELECT main.lower('x') FROM job AT (VERSION => 1)",
    "SELECT json_deserialize_sql('{}')",
    "SELECT stats(job_key) FROM job",
    "SELECT x.nextval('commit_number')",
    "PIVOT job ON cluster USING count(*)",
    "SELECT * FROM (PIVOT credential ON name USING count(*))",
    "SELECT * FROM (UNPIVOT credential ON name INTO NAME a VALUE b)",
    "SELECT $1",
    "SELECT * FROM incoming",
    "SELECT * FROM rows",
    "SELECT * FROM store",
    "SELECT '" + "x" * 200_000 + "'",
    "SELECT 1 AS a, 2 AS a FROM job",
]


@pytest.mark.parametrize("statement", HOSTILE, ids=lambda text: text[:60])
def test_what_is_on_no_list_is_refused(store: Store, statement: str) -> None:
    before = store.data_version()
    with pytest.raises(BadUseError):
        ask(store, statement)
    assert store.data_version() == before


@pytest.mark.parametrize("deep", ["(" * 5000 + "1" + ")" * 5000, "1" + " + 1" * 5000, "NOT " * 5000 + "true"])
def test_a_deep_statement_is_answered_or_refused_and_breaks_nothing(store: Store, deep: str) -> None:
    with contextlib.suppress(BadUseError):
        assert ask(store, f"SELECT {deep} AS deep").rows.num_rows == 1
    assert ask(store, "SELECT 1 AS one").rows.num_rows == 1


def test_a_statement_beyond_its_time_is_stopped(store: Store) -> None:
    endless = "SELECT count(*) FROM range(1000000) AS a(x), range(1000000) AS b(y) WHERE (x * y) % 7 = 3"
    with pytest.raises(StoreError, match="longer than"):
        ask(store, endless, most_seconds=0.2)
    assert ask(store, "SELECT 1 AS one").rows.num_rows == 1


def test_more_rows_than_the_limit_are_cut_and_that_is_said(store: Store) -> None:
    found = ask(store, "SELECT x FROM range(100) AS t(x)", most_rows=10)
    assert (found.rows.num_rows, found.is_cut) == (10, True)
    assert not ask(store, "SELECT x FROM range(10) AS t(x)", most_rows=10).is_cut


def test_the_document_holds_only_what_json_knows(store: Store) -> None:
    statement = """
        SELECT sampled_at, 'nan'::DOUBLE AS nan, [1, 2] AS list, {'a': 1} AS struct, NULL AS nothing,
               1.5::DECIMAL(3, 1) AS dec
        FROM device_sample ORDER BY 1 LIMIT 1
    """
    assert ask(store, statement).document()["rows"] == [
        {
            "sampled_at": "1970-01-01T00:00:00Z",
            "nan": "nan",
            "list": [1, 2],
            "struct": {"a": 1},
            "nothing": None,
            "dec": "1.5",
        }
    ]


def test_no_function_on_the_list_reads_files_settings_or_sequences(store: Store) -> None:
    dangerous = (
        "read_",
        "scan",
        "glob",
        "pragma",
        "duckdb_",
        "query",
        "nextval",
        "getenv",
        "setting",
        "secret",
        "copy",
    )
    assert not [name for name in FUNCTIONS if any(word in name for word in dangerous)]


def test_a_store_without_sealed_days_and_node_keys_answers_too(tmp_path: Path) -> None:
    fresh = open_store(tmp_path / "fresh", create=True)
    try:
        found = sql.ask(fresh, "SELECT count(*) AS n FROM device_sample", most_rows=1, most_seconds=5.0)
    finally:
        fresh.close()
    assert found.rows.to_pylist() == [{"n": 0}]
