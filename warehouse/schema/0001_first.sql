-- The first schema. Times are UTC. Columns of device_sample beyond the tags are added from the metric catalogue.

CREATE TABLE job (
    job_key VARCHAR NOT NULL,
    cluster VARCHAR NOT NULL,
    scheduler_job_id VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    array_job_id VARCHAR,
    array_task_index BIGINT,
    het_job_id VARCHAR,
    het_offset BIGINT,
    name VARCHAR,
    user VARCHAR,
    account VARCHAR,
    namespace VARCHAR,
    partition VARCHAR,
    qos VARCHAR,
    command VARCHAR,
    work_dir VARCHAR,
    image VARCHAR,
    comment VARCHAR,
    submit_at TIMESTAMP,
    requested_gpu_count DOUBLE,
    requested_cpu_count BIGINT,
    requested_memory_bytes BIGINT,
    requested_node_count BIGINT,
    time_limit_seconds DOUBLE,
    interactive BOOLEAN
);

CREATE TABLE attempt (
    attempt_key VARCHAR NOT NULL,
    job_key VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    raw_state VARCHAR,
    start_at TIMESTAMP,
    end_at TIMESTAMP,
    source VARCHAR NOT NULL,
    submit_at TIMESTAMP,
    exit_code BIGINT,
    exit_signal BIGINT,
    node_count BIGINT,
    node_list VARCHAR,
    cpu_count BIGINT
);

CREATE TABLE allocation (
    allocation_key VARCHAR NOT NULL,
    attempt_key VARCHAR NOT NULL,
    gpu_count DOUBLE NOT NULL,
    start_at TIMESTAMP NOT NULL,
    end_at TIMESTAMP,
    source VARCHAR NOT NULL,
    certainty VARCHAR NOT NULL,
    share_ratio DOUBLE NOT NULL,
    device_uuid VARCHAR,
    node VARCHAR,
    gpu_model VARCHAR
);

CREATE TABLE step (
    attempt_key VARCHAR NOT NULL,
    step_id VARCHAR NOT NULL,
    name VARCHAR,
    raw_state VARCHAR,
    start_at TIMESTAMP,
    end_at TIMESTAMP,
    memory_peak_bytes BIGINT,
    cpu_seconds DOUBLE
);

CREATE TABLE attempt_summary (
    attempt_key VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    coverage_ratio DOUBLE NOT NULL,
    coverage_assumed BOOLEAN NOT NULL,
    driver_util_ratio DOUBLE,
    engine_active_ratio DOUBLE,
    gpu_bound_ratio DOUBLE,
    sm_active_ratio DOUBLE,
    gpu_memory_used_bytes DOUBLE,
    gpu_memory_peak_bytes DOUBLE,
    power_watts DOUBLE,
    energy_joules DOUBLE,
    cpu_load_count DOUBLE,
    host_memory_used_bytes DOUBLE
);

CREATE TABLE node (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    since_at TIMESTAMP NOT NULL,
    until_at TIMESTAMP,
    gpu_count BIGINT,
    cpu_count BIGINT,
    memory_bytes BIGINT,
    driver_version VARCHAR
);

CREATE TABLE device (
    device_uuid VARCHAR NOT NULL,
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    since_at TIMESTAMP NOT NULL,
    until_at TIMESTAMP,
    state VARCHAR NOT NULL,
    device_index BIGINT,
    gpu_model VARCHAR,
    memory_bytes BIGINT,
    pci_bus_id VARCHAR
);

CREATE TABLE event (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    happened_at TIMESTAMP NOT NULL,
    device_uuid VARCHAR,
    attempt_key VARCHAR,
    detail VARCHAR
);

CREATE TABLE process_sample (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    device_uuid VARCHAR NOT NULL,
    pid BIGINT NOT NULL,
    sampled_at TIMESTAMP NOT NULL,
    cadence_seconds DOUBLE NOT NULL,
    source VARCHAR NOT NULL,
    attempt_key VARCHAR,
    gpu_bound_seconds DOUBLE,
    copy_seconds DOUBLE,
    gpu_busy_seconds DOUBLE,
    launch_count BIGINT,
    memory_used_bytes DOUBLE,
    cpu_seconds DOUBLE
);

CREATE TABLE device_sample (
    cluster VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    device_uuid VARCHAR NOT NULL,
    sampled_at TIMESTAMP NOT NULL,
    cadence_seconds FLOAT NOT NULL,
    source VARCHAR NOT NULL,
    attempt_key VARCHAR,
    share_ratio FLOAT,
    attribution VARCHAR
);

-- Which batches are in: sending one again adds nothing.
CREATE TABLE batch_ledger (
    agent VARCHAR NOT NULL,
    boot_id VARCHAR NOT NULL,
    sequence BIGINT NOT NULL,
    part BIGINT NOT NULL,
    received_at TIMESTAMP NOT NULL,
    row_count BIGINT NOT NULL,
    rejected_count BIGINT NOT NULL,
    PRIMARY KEY (agent, boot_id, sequence, part)
);

-- Which records of foreign files are in, by content: importing one again adds nothing, and an older state of a
-- record never comes back over a newer one.
CREATE TABLE import_ledger (
    format VARCHAR NOT NULL,
    record_key VARCHAR NOT NULL,
    content_hash BIGINT NOT NULL,
    imported_at TIMESTAMP NOT NULL
);

-- Values that cannot be true, by sender and column: counted, never stored.
CREATE TABLE rejected_value (
    agent VARCHAR NOT NULL,
    column_name VARCHAR NOT NULL,
    rejected_at TIMESTAMP NOT NULL,
    value_count BIGINT NOT NULL
);
