"""Sends half of a 16 MiB frame over each of 150 connections, as far as the broker reads: half_frames.py ADDRESS PID

Tells what the broker has in memory before (VmRSS of process PID) and then, and holds the connections until its
input ends.
"""

import select
import socket
import sys

FRAME = 16 << 20
CONNECTIONS = 150
STALLED_MS = 1000  # nothing is read for so long: all wait


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) // 1024


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    before = resident_mib(sys.argv[2])
    connections = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    half = memoryview(FRAME.to_bytes(4, "big") + bytes(FRAME // 2))
    poll, sent = select.poll(), {}
    for connection in connections:
        connection.setblocking(False)
        sent[connection.fileno()] = 0
        poll.register(connection, select.POLLOUT)
    by_file = {connection.fileno(): connection for connection in connections}
    while ready := poll.poll(STALLED_MS):
        for file, _ in ready:
            try:
                sent[file] += by_file[file].send(half[sent[file] : sent[file] + (64 << 10)])
            except BlockingIOError:
                continue
            except OSError:
                poll.unregister(file)  # closed by the broker
                continue
            if sent[file] == len(half):
                poll.unregister(file)
    total = sum(sent.values()) >> 20
    print(f"{CONNECTIONS} half frames: {total} MiB sent; VmRSS {before} MiB before, {resident_mib(sys.argv[2])} MiB now")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
