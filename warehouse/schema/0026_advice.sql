-- Advice that was given, as it stands; and what became of it, one row for each change, never rewritten. No names of
-- people: an advice on a job goes when the job's data are purged, for it carries the job's key.
CREATE TABLE recommendation (
    recommendation_id VARCHAR NOT NULL,
    remedy VARCHAR NOT NULL,
    subject_kind VARCHAR NOT NULL,
    subject_id VARCHAR NOT NULL,
    job_key VARCHAR,
    since_at TIMESTAMP NOT NULL,
    until_at TIMESTAMP NOT NULL,
    low_gpu_seconds DOUBLE NOT NULL,
    likely_gpu_seconds DOUBLE,
    high_gpu_seconds DOUBLE NOT NULL,
    allocated_gpu_seconds DOUBLE,
    used_gpu_seconds DOUBLE,
    state VARCHAR NOT NULL,
    reason VARCHAR,
    quiet_until_at TIMESTAMP,
    first_told_at TIMESTAMP NOT NULL,
    last_told_at TIMESTAMP NOT NULL,
    predicted_gpu_seconds DOUBLE,
    realised_gpu_seconds DOUBLE
);
CREATE TABLE outcome (
    recommendation_id VARCHAR NOT NULL,
    job_key VARCHAR,
    happened_at TIMESTAMP NOT NULL,
    state VARCHAR NOT NULL,
    reason VARCHAR,
    predicted_gpu_seconds DOUBLE,
    realised_gpu_seconds DOUBLE
);
