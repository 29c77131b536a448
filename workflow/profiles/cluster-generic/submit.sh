#!/bin/sh
# submit.sh JOBSCRIPT: submits Snakemake's job script to the scheduler and prints the job's id.
# The job writes its exit code to a file, so the scheduler need not remember finished jobs.
set -eu
. "$(dirname "$0")/scheduler.sh"

jobscript=$1
# Snakemake describes the job in one line of JSON in its script.
wishes=$(sed -n 's/^# properties = //p' "$jobscript" | python3 -c '
import json, sys
job = json.load(sys.stdin)
wish = job["resources"]
print(job.get("rule") or job["groupid"], job["threads"], wish["mem_mb"], wish["runtime"])
print(wish.get("gpu") or "-", wish.get("queue") or "-")
')
{ read -r name threads memory_mb minutes; read -r gpu queue; } <<END
$wishes
END
name=dp-atlas.$name
[ "$gpu" != - ] || gpu=
[ "$queue" != - ] || queue=

mkdir -p .snakemake/cluster
folder=$(mktemp -d "$PWD/.snakemake/cluster/job-XXXXXX")
log=$folder/output
script=$folder/script.sh
cp "$jobscript" "$folder/job.sh"
cat >"$script" <<END
#!/bin/sh
cd '$PWD'
sh '$folder/job.sh'
code=\$?
echo \$code >'$folder/exit.part' && mv '$folder/exit.part' '$folder/exit'
exit \$code
END

id=$(submit_job)
[ -n "$id" ] || { echo "submit.sh: the scheduler gave no job id" >&2; exit 1; }
ln -sfn "$folder" ".snakemake/cluster/$id"
echo "$id"
