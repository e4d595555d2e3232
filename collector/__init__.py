"""The node agent and the job-metadata collectors: they measure, and judge nothing."""
