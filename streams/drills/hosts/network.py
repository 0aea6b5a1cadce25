"""The network of a drill with hosts: a bridge in a network namespace of its own, so that nothing outside is touched or in the way.

The thread that holds the drill enters the namespace, and everything that it starts is in it: the broker, the driver, Spark's
master, and the readers. Each host is a further namespace, joined to the bridge. Namespaces end with their last process or thread,
so nothing is left behind even after SIGKILL. Only root may do that (in a container, with CAP_SYS_ADMIN and CAP_NET_ADMIN); for
anybody else, `unshare --user --map-root-user --net --mount streams drill run ...` makes a world in which that is so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streams.drills.failure import DrillFailed

BRIDGE = "hosts"
PREFIX = "10.77.0."
CENTRE = f"{PREFIX}1"
"""The address of the bridge: driver and master."""
BROKER = f"{PREFIX}9"
"""A further address of the bridge, for the broker alone, so that a host can be cut off from the broker and from nothing else."""
SPACES = ("--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Options of `unshare` for a host: it ends with the process that was started, and has its own network, files and processes."""
_CLONE_NEWNET = 0x40000000
_TOOLS = ("unshare", "nsenter", "ip", "mount")


def why_not() -> str:
    """Why hosts cannot be namespaces here; empty if they can."""
    if sys.platform != "linux":
        return "only Linux has namespaces"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} cannot be found (packages util-linux and iproute2)"
    if os.geteuid() != 0:
        return "only root may make namespaces"
    script = f"ip link add name {BRIDGE} type bridge && mount -t tmpfs none /mnt"
    tried = subprocess.run(
        ["unshare", *SPACES, "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
    )
    return "" if tried.returncode == 0 else f"namespaces cannot be made: {tried.stderr.strip()}"


@contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread, and what it starts, to a network of its own with a bridge for hosts; back at the end."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise DrillFailed(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        try:
            ip("link", "set", "lo", "up")
            ip("link", "add", "name", BRIDGE, "type", "bridge")
            for address in (CENTRE, BROKER):
                ip("address", "add", f"{address}/24", "dev", BRIDGE)
            ip("link", "set", BRIDGE, "up")
            yield
        finally:
            libc.setns(before, _CLONE_NEWNET)
    finally:
        os.close(before)


def join(pid: int, name: str, address: str) -> None:
    """Joins the network namespace of a process to the bridge."""
    ip("link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", name, "master", BRIDGE, "up")
    ip("link", "set", "lo", "up", inside=pid)
    ip("address", "add", f"{address}/24", "dev", "eth0", inside=pid)
    ip("link", "set", "eth0", "up", inside=pid)


def ip(*arguments: str, inside: int | None = None) -> None:
    """Runs `ip`.

    Raises:
        DrillFailed: It failed.
    """
    there = [] if inside is None else ["nsenter", "--target", str(inside), "--net"]
    done = subprocess.run([*there, "ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise DrillFailed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
