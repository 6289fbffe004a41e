#!/usr/bin/env python3
"""Starts a command as N processes of one group, as a launcher does: ranks_start.py N COMMAND [ARGUMENT...]. Output and exit code are
those of rank 0; what other ranks print goes to standard error of their own, which is shown if rank 0 fails or RANKS_SHOW is set."""
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def places(n, port=None):
    """The variables of each rank."""
    port = port or free_port()
    return [{"RANK": str(r), "WORLD_SIZE": str(n), "LOCAL_RANK": str(r), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} for r in range(n)]


def main():
    n, command = int(sys.argv[1]), sys.argv[2:]
    of_ranks = places(n)
    others = [subprocess.Popen(command, env=dict(os.environ, **p), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True) for p in of_ranks[1:]]
    code = subprocess.run(command, env=dict(os.environ, **of_ranks[0])).returncode
    for rank, other in enumerate(others, 1):
        _, said = other.communicate(timeout=60)
        if code or other.returncode or "RANKS_SHOW" in os.environ:
            sys.stderr.write("rank %d: exit code %d\n%s" % (rank, other.returncode, said))
        code = code or other.returncode
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
