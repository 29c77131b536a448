#!/bin/sh
# status.sh ID: prints running, success or failed. A job that the scheduler no longer lists and that
# has written no exit code counts as failed after a delay, which allows for a slow file system.
. "$(dirname "$0")/scheduler.sh"

grace_s=${DPATLAS_GRACE_S:-60}
folder=.snakemake/cluster/$1

verdict() {
    if [ "$(cat "$folder/exit")" = 0 ]; then echo success; else echo failed; fi
    exit 0
}

[ ! -f "$folder/exit" ] || verdict
if ! listed=$(list_jobs 2>/dev/null) || echo "$listed" | grep -qxF "$1"; then
    rm -f "$folder/gone"
    echo running
    exit 0
fi
# It may have ended between the two checks.
[ ! -f "$folder/exit" ] || verdict
now=$(date +%s)
[ -f "$folder/gone" ] || echo "$now" >"$folder/gone"
if [ $((now - $(cat "$folder/gone"))) -lt "$grace_s" ]; then echo running; else echo failed; fi
