"""A scheduler of its own kind: qsub, qstat, qselect, qdel, bsub, bjobs, bkill over a spool folder.

Jobs start at once, each in a session of its own. The spool is the folder named FAKE_SPOOL; a file
`down` in it makes questions fail.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

COMMANDS = ("qsub", "qstat", "qselect", "qdel", "bsub", "bjobs", "bkill")
# Values after an option, where it is not one.
VALUES = {"-terse": 0, "-V": 0, "-cwd": 0, "-pe": 2}


def install(folder: Path) -> None:
    """Put the commands into `folder`, to be named in PATH."""
    folder.mkdir(parents=True)
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{__file__}" {name} "$@"\n')
        path.chmod(0o755)


def submit(spool: Path, command: str, arguments: list[str]) -> str:
    """Start a job: its id, followed by the server's name for PBS."""
    options, words = [], iter(arguments)
    script = sys.stdin.read() if command == "bsub" else None
    for word in words:
        if word.startswith("-"):
            options.append([word, *islice(words, VALUES.get(word, 1))])
        else:
            script = Path(word).read_text()
    number = 1 + len(list(spool.glob("*.json")))
    (output,) = (value for option, *value in options if option == "-o")
    with Path(output[0]).open("ab") as log:
        job = subprocess.Popen(
            ["sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    facts = {"pid": job.pid, "options": options}
    (spool / f"{number}.json").write_text(json.dumps(facts))
    if command == "bsub":
        return f"Job <{number}> is submitted to default queue <normal>."
    return f"{number}" if ["-terse"] in options else f"{number}.server"


def alive(pid: int) -> bool:
    """True while a process runs; a zombie does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def listing(spool: Path, command: str) -> list[str]:
    """The lines that the question gives, one for each job that runs."""
    numbers = [
        path.stem
        for path in sorted(spool.glob("*.json"), key=lambda path: int(path.stem))
        if alive(json.loads(path.read_text())["pid"])
    ]
    if command == "qselect":
        return [f"{number}.server" for number in numbers]
    if command == "qstat" and numbers:
        return ["job-ID  prior", "-" * 40, *(f"{number} 0.5 name user r" for number in numbers)]
    return numbers


def cancel(spool: Path, numbers: list[str]) -> None:
    """Kill jobs with everything that they started."""
    for number in numbers:
        pid = json.loads((spool / f"{number.split('.')[0]}.json").read_text())["pid"]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def main(command: str, *arguments: str) -> int:
    """Run one command."""
    spool = Path(os.environ["FAKE_SPOOL"])
    if command in ("qsub", "bsub"):
        print(submit(spool, command, list(arguments)))
    elif command in ("qdel", "bkill"):
        cancel(spool, list(arguments))
    elif (spool / "down").exists():
        return 1
    else:
        print(*listing(spool, command), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
