#!/bin/sh
# cancel.sh ID...: removes jobs from the scheduler; Snakemake calls it when it is interrupted.
. "$(dirname "$0")/scheduler.sh"
cancel_jobs "$@"
