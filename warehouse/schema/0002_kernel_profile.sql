-- Kernels by launch configuration and hour, from profiles. Durations are sums and maxima of single launches.

CREATE TABLE kernel_profile (
    attempt_key VARCHAR NOT NULL,
    profile VARCHAR NOT NULL,
    source VARCHAR NOT NULL,
    hour_at TIMESTAMP NOT NULL,
    kernel_name VARCHAR NOT NULL,
    launch_count BIGINT NOT NULL,
    total_seconds DOUBLE NOT NULL,
    longest_seconds DOUBLE NOT NULL,
    grid VARCHAR,
    block VARCHAR,
    registers_per_thread BIGINT,
    shared_memory_bytes BIGINT
);
