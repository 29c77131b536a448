#!/bin/sh
# Everything that wants a GPU, in one call of less than ten minutes: docs/gpu.md says what it measures.
#   sh tools/gpu_check.sh [FOLDER]          results go to FOLDER, gpu_check by default, below $OUT if set
#   sh tools/gpu_check.sh --cpu [FOLDER]    every step on the CPU with tiny sizes: a rehearsal
#   PYTHON=python3.12   the interpreter; else that of .venv, else python3. Nothing is installed.
#   SECONDS_IN_ALL=570  after these no step begins, and one that runs is stopped
#   CIFAR10=FOLDER      a copy of CIFAR-10 in a form that docs/data.md names
set -u

device=cuda folder=gpu_check named=
for word in "$@"; do
    case $word in
        --cpu) device=cpu ;;
        -*) echo "gpu_check: found $word; allowed: --cpu and one folder" >&2; exit 2 ;;
        *)
            [ -z "$named" ] || { echo "gpu_check: a second folder, $word; allowed: one" >&2; exit 2; }
            folder=$word named=yes
            ;;
    esac
done
[ -z "${OUT:-}" ] || folder=$OUT/$folder
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
cd "$(dirname "$0")/.." || exit 2

python=${PYTHON:-}
[ -n "$python" ] || { [ -x .venv/bin/python ] && python=$PWD/.venv/bin/python; } || python=python3
command -v "$python" >/dev/null || { echo "gpu_check: no $python: name one with PYTHON=..." >&2; exit 2; }
command -v timeout >/dev/null || { echo "gpu_check: no timeout: install the GNU coreutils" >&2; exit 2; }
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1

# Says what is missing; exit code 3: no step can run here.
"$python" tools/gpu_check.py environment --folder "$folder" --device $device
code=$?
[ $code -ne 3 ] || exit 0
[ $code -eq 0 ] || exit $code

start=$(date +%s) in_all=${SECONDS_IN_ALL:-570}

# step NAME LIMIT WORDS...: a step has LIMIT seconds, or what is left of the whole.
step() {
    name=$1 limit=$2
    shift 2
    began=$(date +%s)
    left=$((in_all - began + start))
    [ "$limit" -le "$left" ] || limit=$left
    if [ "$limit" -ge 5 ]; then
        echo "gpu_check: $name, $limit s at most"
        echo "== $name" >>"$folder/log.txt"
        timeout -k 5 "$limit" "$python" tools/gpu_check.py "$@" --folder "$folder" \
            --device $device >>"$folder/log.txt" 2>&1
        code=$?
    else
        code=none
    fi
    # At once: a run that is cut short leaves a summary of what it did.
    "$python" tools/gpu_check.py summary --folder "$folder" --device $device \
        --step "$name" --code $code --seconds $(($(date +%s) - began))
}

# In the order of what is worth most.
step tests 100 tests
step resnet18-batch64 80 bench conv resnet18-batch64
step wrn16-4-batch1000 80 bench conv wrn16-4-batch1000
step kl-width1024 80 bench kl width1024
step precision 50 precision
step certificate 50 bench certificate reparametrisation
step wrn16-4-batch4096 100 bench conv wrn16-4-batch4096
step panel 150 panel
echo "gpu_check: read $folder/summary.md"
