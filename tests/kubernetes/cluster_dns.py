"""A DNS server for names of Services, as a cluster has one. Example: serve("10.32.0.1", lambda name: ["10.32.0.10"])"""

import socket
import struct
import threading

TYPE_A, NAME_ERROR = 1, 3


def answer(query, lookup):
    """`lookup`: addresses of a name without a final dot, None where there is no such name."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind, = struct.unpack_from(">H", query, at + 1)
    addresses = lookup(".".join(labels).lower())
    records = [b"\xc0\x0c" + struct.pack(">HHIH", TYPE_A, 1, 5, 4) + socket.inet_aton(a)
               for a in (addresses or []) if kind == TYPE_A]
    flags = 0x8580 | (NAME_ERROR if addresses is None else 0)
    header = query[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
    return header + query[12:at + 5] + b"".join(records)


def serve(address, lookup):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, 53))

    def loop():
        while True:
            query, client = server.recvfrom(512)
            server.sendto(answer(query, lookup), client)

    threading.Thread(target=loop, daemon=True).start()
