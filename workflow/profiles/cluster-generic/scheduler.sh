# Commands of the scheduler, for submit.sh, status.sh and cancel.sh. EDIT: set one, or add a fourth.
scheduler=${DPATLAS_SCHEDULER:-sge} # sge, pbs or lsf

# submit_job  submits "$script" and prints the new job's id and nothing else. It may use $name,
#             $threads, $memory_mb, $minutes, $log, and $gpu and $queue, which are empty for none.
# list_jobs   prints the ids of this user's waiting and running jobs, one per line; exit code 0 says
#             that the list is complete, any other that the scheduler did not answer.
# cancel_jobs removes the jobs with the ids "$@".
case $scheduler in
sge)
    submit_job() {
        # EDIT: smp is a parallel environment, `qconf -spl` lists yours; mem_free and gpu are
        # resources, `qconf -sc` lists yours. A limit of h_vmem must be about 10 GB above memory_mb:
        # it limits virtual memory, of which torch reserves much.
        qsub -terse -V -cwd -S /bin/sh -N "$name" -j y -o "$log" -pe smp "$threads" \
            -l "mem_free=${memory_mb}M,h_rt=$((minutes * 60))" \
            ${gpu:+-l "gpu=$gpu"} ${queue:+-q "$queue"} "$script"
    }
    list_jobs() { listed=$(qstat -u "$(id -un)") && echo "$listed" | awk 'NR > 2 { print $1 }'; }
    cancel_jobs() { qdel "$@"; }
    ;;
pbs)
    submit_job() {
        # EDIT: Torque wants -l "nodes=1:ppn=$threads:gpus=$gpu,mem=${memory_mb}mb,walltime=..."
        qsub -V -S /bin/sh -N "$name" -j oe -o "$log" \
            -l "select=1:ncpus=$threads:mem=${memory_mb}mb${gpu:+:ngpus=$gpu}" \
            -l "walltime=$((minutes * 60))" ${queue:+-q "$queue"} "$script"
    }
    list_jobs() { qselect -u "$(id -un)" -s EHQRSTW; }
    cancel_jobs() { qdel "$@"; }
    ;;
lsf)
    submit_job() {
        # EDIT: -M and rusage[mem] are in MB here; LSF_UNIT_FOR_LIMITS in lsf.conf may set another unit.
        bsub -J "$name" -o "$log" -n "$threads" -R "span[hosts=1] rusage[mem=$memory_mb]" \
            -M "$memory_mb" -W "$minutes" ${gpu:+-gpu "num=$gpu"} ${queue:+-q "$queue"} \
            <"$script" | sed -n 's/^Job <\([0-9]*\)>.*/\1/p'
    }
    list_jobs() { bjobs -noheader -o jobid; }
    cancel_jobs() { bkill "$@"; }
    ;;
*)
    echo "scheduler.sh: found scheduler=$scheduler; allowed: sge, pbs, lsf" >&2
    exit 2
    ;;
esac
