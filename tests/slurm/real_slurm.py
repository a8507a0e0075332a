"""A real Slurm on this machine, whose two nodes have a network, a name and mounts of their own."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from paceline.cluster.namespaces import shaped_network

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "setpriv", "nsenter", "ip", "tc")
NODES = ("n1", "n2")
_SECONDS = 300  # for daemons to come up, and to end
_CONF = """\
ClusterName=paceline
SlurmctldHost=head({head})
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait=3
MinJobAge=600
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeAddr={n1} CPUs=8 RealMemory=8000 State=UNKNOWN
NodeName=n2 NodeAddr={n2} CPUs=8 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP PriorityTier=2 PreemptMode=OFF
PartitionName=low Nodes=n1,n2 MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=3
"""


class RealSlurm(NamedTuple):
    """A Slurm that is up. `environment`: by which its commands find it."""

    environment: dict[str, str]

    def ask(self, *command: str) -> str:
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=30
        )
        return done.stdout.strip() if done.returncode == 0 else f"{done.stdout}{done.stderr}"


def why_not() -> str | None:
    """Return why no Slurm can be started here, or None."""
    if os.geteuid():
        return "a Slurm of our own, with network namespaces as nodes, needs root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"there is no {missing[0]}" if missing else None


@contextlib.contextmanager
def real_slurm(folder: Path) -> Generator[RealSlurm]:
    """Have a Slurm inside, with files in `folder`. Processes of jobs end with their nodes."""
    munge = folder / "munge"
    for each in (munge, folder / "state", *(folder / f"spool-{name}" for name in NODES)):
        each.mkdir(parents=True)
    munge.chmod(0o711)
    with shaped_network(len(NODES), 1.25e9) as network, contextlib.ExitStack() as daemons:
        subnet, _, place = network.address.rpartition(".")
        addresses = {name: f"{subnet}.{int(place) + 1 + i}" for i, name in enumerate(NODES)}
        conf = folder / "slurm.conf"
        with socket.create_server((network.address, 0)) as free:
            head = {"head": network.address, "port": free.getsockname()[1]}
        conf.write_text(_CONF.format(folder=folder, **head, **addresses))
        environment = {**os.environ, "SLURM_CONF": str(conf)}
        key = munge / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        paths = [f"--{name}={munge / name}" for name in ("socket", "pid-file", "seed-file")]
        _daemon(
            daemons,
            folder,
            environment,
            "munged",
            "--foreground",
            "--force",
            *paths,
            f"--key-file={key}",
            f"--log-file={munge / 'log'}",
        )
        _until(lambda: (munge / "socket").exists(), "munged")
        _named(daemons, folder, environment, "head", [], "exec slurmctld -D")
        for name, namespace in zip(NODES, network.namespaces, strict=True):
            own = f"exec slurmd -D -N {name}"
            _named(daemons, folder, environment, name, [f"--net={namespace}"], own)
        slurm = RealSlurm({"SLURM_CONF": str(conf)})
        idle = "n1 idle\nn2 idle"
        asked = ("sinfo", "--Node", "--noheader", "--partition=main", "--format=%N %T")
        _until(lambda: slurm.ask(*asked) == idle, "Slurm", slurm, asked)
        yield slurm


def _named(daemons, folder, environment, name, spaces, command):
    """Start a daemon with a host name of its own, and mounts that only it sees.

    A node has its own processes, too, which end with it.
    """
    processes = ["--pid", "--fork", "--kill-child", "--mount-proc"] if spaces else []
    shell = ["unshare", "--uts", "--mount", *processes, "sh", "-c", f"hostname {name} && {command}"]
    enter = ["nsenter", *spaces] if spaces else []
    _daemon(daemons, folder, environment, *enter, *shell)


def _daemon(daemons, folder, environment, *command):
    """Start a daemon that ends with this process, and at the end of `daemons`."""
    with (folder / "daemons.log").open("a") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], env=environment, stdout=log, stderr=log
        )
    daemons.callback(_end, process)


def _end(process):
    process.kill()
    process.wait()


def _until(condition, what, *about):
    until = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > until:
            told = [each.ask(*about[1]) for each in about[:1]]
            raise TimeoutError(f"{what} is not there after {_SECONDS} s: {told}")
        time.sleep(0.1)
