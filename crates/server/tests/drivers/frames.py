"""Messages of the protocol, sent as they are; what is answered is printed, message by message.

Left out is what servers may differ in: files, lines and contexts of an error, ids of tables.
"""

import socket
import struct
import sys
from urllib.parse import urlparse

url = urlparse(sys.argv[1])


def frame(kind, *parts):
    content = b"".join(part if isinstance(part, bytes) else part.encode() + b"\0" for part in parts)
    return kind.encode() + struct.pack("!i", len(content) + 4) + content


def query(text):
    return frame("Q", text)


def parse(name, text, *types):
    return frame("P", name, text, struct.pack(f"!h{len(types)}I", len(types), *types))


def bind(portal, statement, *values, formats=(), results=()):
    content = struct.pack(f"!h{len(formats)}h", len(formats), *formats) + struct.pack("!h", len(values))
    for value in values:
        content += struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value
    return frame("B", portal, statement, content + struct.pack(f"!h{len(results)}h", len(results), *results))


def describe(kind, name):
    return frame("D", kind.encode(), name)


def close(kind, name):
    return frame("C", kind.encode(), name)


def execute(portal, most=0):
    return frame("E", portal, struct.pack("!i", most))


SYNC, FLUSH = frame("S"), frame("H")


class Client:
    def __init__(self):
        self.told = []
        self.socket = socket.create_connection((url.hostname, url.port), timeout=60)
        pairs = b"user\0postgres\0database\0" + url.path[1:].encode() + b"\0\0"
        self.socket.sendall(struct.pack("!ii", len(pairs) + 8, 3 << 16) + pairs)
        while (answer := self.next())[0] != "Z":
            if answer[0] == "K":
                self.key = answer[1]

    def bytes(self, count):
        got = b""
        while len(got) < count:
            more = self.socket.recv(count - len(got))
            if not more:
                raise EOFError
            got += more
        return got

    def next(self):
        kind, length = struct.unpack("!ci", self.bytes(5))
        return kind.decode(), self.bytes(length - 4)

    def show(self, until="Z"):
        """Prints what comes, but for settings, which come in any order and are kept."""
        while True:
            kind, content = self.next()
            if kind == "S":
                self.told.append(content)
            else:
                print("  ", kind, shown(kind, content), flush=True)
            if kind == "Z":
                self.state = content
            if kind in until:
                return kind

    def send(self, *messages):
        self.socket.sendall(b"".join(messages))

    def ask(self, title, *messages):
        print(title)
        self.send(*messages)
        self.show()


def shown(kind, content):
    if kind in "EN":
        fields = [(part[:1].decode(), part[1:].decode()) for part in content.split(b"\0") if part]
        return [field for field in fields if field[0] not in "FLRW"]
    if kind == "T":
        (count,), at, columns = struct.unpack("!h", content[:2]), 2, []
        for _ in range(count):
            end = content.index(b"\0", at)
            table, *rest = struct.unpack("!IhIhih", content[end + 1:end + 19])
            columns.append((content[at:end].decode(), table > 0, *rest))
            at = end + 19
        return columns
    # Whose number it is differs.
    return content[4:] if kind == "A" else content

