-- What the driver tells of single processes, beside what the tracer tells of those that are traced.

ALTER TABLE process_sample ADD COLUMN driver_util_ratio DOUBLE;
