#!/bin/sh
# Slurm Epilog (runs as root on each node of a job): writes down that the job gave its GPUs back, and forgets old files.
# Never fails: an epilog that does drains the node. slurm.conf: Epilog=/usr/libexec/trueload/trueload-epilog.sh
umask 022
folder=${TRUELOAD_SLURM_JOBS_DIR:-/run/trueload/jobs}
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
for file in "$folder/$SLURM_JOB_ID".*.job; do
    [ -f "$file" ] && [ ! -L "$file" ] && ! grep -q '^end_at=' "$file" || continue
    new=$(mktemp "$folder/.new.XXXXXX") || exit 0
    { cat "$file" && echo "end_at=$(date +%s)"; } >"$new" && chmod 0644 "$new" && mv -f "$new" "$file" || rm -f "$new"
done
# Within a day the agent has told the server; what a dead node left behind goes, too.
find "$folder" -maxdepth 1 -type f -name '*.job' -mtime +1 -exec grep -q '^end_at=' {} \; -exec rm -f {} + 2>/dev/null
find "$folder" -maxdepth 1 -type f -name '.new.*' -mmin +60 -exec rm -f {} + 2>/dev/null
exit 0
