"""Stands between an MCP client and a server over HTTP, and loses one reply: the first one
that says that an issue was created, and so after the server's commit.

    python3 lab/python/lose_reply.py [PORT [SERVER_PORT]]      by default 8788 and 8787

Everything else is passed on as it is. One connection at a time, for trying things out.
"""

import socket
import sys


def main(port=8788, server_port=8787):
    front = socket.create_server(("127.0.0.1", port))
    print(f"passing on port {front.getsockname()[1]} to {server_port}", file=sys.stderr, flush=True)
    has_lost = False
    while True:
        client, _ = front.accept()
        with client:
            request = read_request(client)
            if request is None:
                continue
            reply = pass_on(request, server_port)
            is_applied = b'"create_issue"' in request and b'"applied"' in reply
            if is_applied and not has_lost:
                has_lost = True
                print("lost the reply to create_issue", file=sys.stderr, flush=True)
                continue
            client.sendall(reply)


def read_request(client):
    """A whole request, or None if the client leaves before its end."""
    request = b""
    while b"\r\n\r\n" not in request:
        more = client.recv(65536)
        if not more:
            return None
        request += more
    head, _, body = request.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        more = client.recv(65536)
        if not more:
            return None
        body += more
    # Asked to close, the server ends its reply by closing.
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body


def pass_on(request, server_port):
    """The server's whole reply."""
    with socket.create_connection(("127.0.0.1", server_port)) as server:
        server.sendall(request)
        reply = b""
        while more := server.recv(65536):
            reply += more
        return reply


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except KeyboardInterrupt:
        pass
