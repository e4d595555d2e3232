-- What the tracer tells of a process, and how long its kernels and the gaps between them were.

ALTER TABLE process_sample ADD COLUMN process_key VARCHAR;
ALTER TABLE process_sample ADD COLUMN covered_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN source_lost_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN late_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN kernel_count BIGINT;
ALTER TABLE process_sample ADD COLUMN kernel_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN gap_count BIGINT;
ALTER TABLE process_sample ADD COLUMN steps_total BIGINT;
ALTER TABLE process_sample ADD COLUMN tracing_low_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN tracing_seconds DOUBLE;
ALTER TABLE process_sample ADD COLUMN tracing_high_seconds DOUBLE;

CREATE TABLE length_profile (
    attempt_key VARCHAR NOT NULL,
    profile VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    hour_at TIMESTAMP NOT NULL,
    device_uuid VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    shortest_seconds DOUBLE NOT NULL,
    longest_seconds DOUBLE,
    length_count BIGINT NOT NULL
);
