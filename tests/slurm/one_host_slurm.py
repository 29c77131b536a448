"""A real Slurm on this machine: a controller, three nodes on one host, their own munge.

Needs root, for a while owns /etc/slurm/slurm.conf (the clients read no other place once Snakemake
has dropped SLURM_*), and refuses a machine that has a Slurm of its own.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "DPATLAS_TEST_SLURM"
CONFIG = Path("/etc/slurm/slurm.conf")
FILES = (CONFIG, CONFIG.with_name("gres.conf"))
MARK = "# Written by the tests of dp-atlas, which remove it when they end."
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
DAEMONS = ("slurmctld", "slurmd", "munged")
NODES = ("n1", "n2", "n3")
CONTROLLER_PORT, NODE_PORTS = 26817, range(26901, 26901 + len(NODES))
MEMORY_MB = 16000
FINISHED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def why_not() -> str | None:
    """Why no Slurm may be started here; None if one may."""
    if os.environ.get(VARIABLE) != "1":
        return f"starts daemons as root and writes {CONFIG}: allow it with {VARIABLE}=1"
    if os.geteuid() != 0:
        return "needs root"
    theirs = [f"{path}" for path in FILES if path.exists() and not _is_ours(path)]
    theirs += [f"{name} running" for name in ("slurmctld", "slurmd") if _runs(name)]
    if theirs:
        return f"this machine has a Slurm of its own: {', '.join(theirs)}"
    if shutil.which("apt-get") is None and _absent():
        return f"not installed: {', '.join(_absent())}; and there is no apt-get"
    return None


def wait_for(what: str, condition: Callable[[], object], seconds: float = 60):
    """The first true value of `condition`; raises TimeoutError, which says what was awaited."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds:g} s")


def _absent() -> list[str]:
    return [name for name in (*DAEMONS, "sbatch", "srun") if shutil.which(name) is None]


def _is_ours(path: Path) -> bool:
    return path.read_text().startswith(MARK)


def _runs(name: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == name:
                return True
    return False


def _install() -> None:
    # Without a configuration the packages' services do not start.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ("apt-get", "install", "-q", "-y", "--no-install-recommends", *PACKAGES)
    for command in (("apt-get", "update", "-q"), install):
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)


class OneHostSlurm:
    """Context manager: installs Slurm if it is absent, starts it, and takes it all down again."""

    def __init__(self):
        self.daemons: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> "OneHostSlurm":
        if _absent():
            _install()
        # Its sockets must be open to all users, which pytest's own folders are not.
        self.folder = Path(tempfile.mkdtemp(prefix="dp-atlas-slurm-", dir="/tmp"))
        self.folder.chmod(0o755)
        try:
            self._configure()
            self._start("munged", *self._munged())
            wait_for("munged", (self.folder / "munge.socket").exists)
            self._start("slurmctld", "slurmctld", "-D", "-c")
            for node in NODES:
                self.start_node(node)
            wait_for("three idle nodes", lambda: self.sinfo().count("idle") == len(NODES))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *failure) -> None:
        with contextlib.suppress(subprocess.SubprocessError, OSError, TimeoutError):
            self.cancel(*self.active())
            wait_for("cancelled jobs", lambda: not self.active(), seconds=20)
        for name in reversed(list(self.daemons)):
            self._stop(name)
        for path in FILES:
            if path.exists() and _is_ours(path):
                path.unlink()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configure(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs=1 RealMemory={MEMORY_MB} Gres=gpu:1"
            for node, port in zip(NODES, NODE_PORTS, strict=True)
        )
        CONFIG.parent.mkdir(exist_ok=True)
        settings, gpus = FILES
        gpus.write_text(f"{MARK}\nNodeName={','.join(NODES)} Name=gpu File=/dev/null\n")
        settings.write_text(
            f"""{MARK}
ClusterName=dpatlas
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={CONTROLLER_PORT}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.socket
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MinJobAge=86400
ReturnToService=2
SlurmdTimeout=30
KillWait=5
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
"""
        )

    def _munged(self) -> tuple[str, ...]:
        paths = ("key", "socket", "pid", "seed", "log")
        options = {name: self.folder / f"munge.{name}" for name in paths}
        return (
            "munged",
            "--foreground",
            "--force",
            f"--key-file={options['key']}",
            f"--socket={options['socket']}",
            f"--pid-file={options['pid']}",
            f"--seed-file={options['seed']}",
            f"--log-file={options['log']}",
        )

    def _start(self, name: str, *command: str) -> None:
        # A killed test run takes its daemons with it.
        with (self.folder / f"{name}.out").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                ("setpriv", "--pdeathsig", "TERM", *command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _stop(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def start_node(self, node: str) -> None:
        """Start the daemon of one node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def kill_node(self, node: str) -> None:
        """kill -9 of a node's daemon; what runs on the node lives on."""
        daemon = self.daemons.pop(node)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()

    def ask(self, *command: str) -> str:
        """What a Slurm command prints; raises CalledProcessError."""
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=30
        ).stdout

    def sinfo(self) -> list[str]:
        """The state of every node; none before the controller answers."""
        try:
            return self.ask("sinfo", "-h", "-N", "-o", "%T").split()
        except subprocess.CalledProcessError:
            return []

    def jobs(self) -> dict[str, dict[str, str]]:
        """Id of every job so far -> what `scontrol show job` says of it."""
        shown = {}
        for line in self.ask("scontrol", "show", "job", "-o").splitlines():
            facts = dict(part.split("=", 1) for part in line.split() if "=" in part)
            if "JobId" in facts:
                shown[facts["JobId"]] = facts
        return shown

    def active(self) -> list[str]:
        """Ids of the jobs that wait or run."""
        return [name for name, job in self.jobs().items() if job["JobState"] not in FINISHED]

    def cancel(self, *jobs: str) -> None:
        """scancel."""
        if jobs:
            self.ask("scancel", *jobs)
