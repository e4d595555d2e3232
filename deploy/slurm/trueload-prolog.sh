#!/bin/sh
# Slurm Prolog (runs as root on each node of a job): writes down which GPUs the job was given here.
# Never fails: a prolog that does drains the node. slurm.conf: Prolog=/usr/libexec/trueload/trueload-prolog.sh
umask 022
folder=${TRUELOAD_SLURM_JOBS_DIR:-/run/trueload/jobs}
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
mkdir -p "$folder" 2>/dev/null || exit 0

# One word of letters that a device or an id can have; a line break from the environment would forge a line.
word() { printf '%s' "$1" | tr -cd 'A-Za-z0-9,:/_.-'; }

# UUIDs say more than numbers: those of MIG instances cannot be had from a number.
case ${CUDA_VISIBLE_DEVICES:-} in
*GPU-* | *MIG-*) gpus=$CUDA_VISIBLE_DEVICES ;;
*) gpus=${SLURM_JOB_GPUS:-${GPU_DEVICE_ORDINAL:-}} ;;
esac
case ${SLURM_JOB_START_TIME:-} in '' | *[!0-9]*) start=$(date +%s) ;; *) start=$SLURM_JOB_START_TIME ;; esac
shared=0
[ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}${SLURM_SHARDS_ON_NODE:-}" ] && shared=1
new=$(mktemp "$folder/.new.XXXXXX") || exit 0
{
    echo "job_id=$SLURM_JOB_ID"
    echo "start_at=$start"
    echo "user_id=$(word "${SLURM_JOB_UID:-}")"
    echo "cluster=$(word "${SLURM_CLUSTER_NAME:-}")"
    echo "sluid=$(word "${SLURM_JOB_SLUID:-}")"
    echo "gpus=$(word "$gpus")"
    echo "shared=$shared"
} >"$new" && chmod 0644 "$new" && mv -f "$new" "$folder/$SLURM_JOB_ID.$start.job" || rm -f "$new"
exit 0
