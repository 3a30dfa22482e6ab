"""lose_reply.py loses the one reply that the README says, and passes the rest on."""

import http.client
import http.server
import pathlib
import subprocess
import sys
import threading
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parent / "lose_reply.py"


class Server(http.server.BaseHTTPRequestHandler):
    """Answers a call that has the word `body` as applied, another one as asked."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = self.rfile.read(int(self.headers["Content-Length"]))
        reply = b'{"state": "applied"}' if b"body" in request else b'{"state": "asked"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


class LoseReply(unittest.TestCase):
    def test_one_applied_reply_is_lost_and_no_other(self):
        # Promise: what the README has a new user do shows a reply lost after its commit.
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        front = subprocess.Popen(
            [sys.executable, str(SCRIPT), "0", str(server.server_port)],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(front.stderr.close)
        self.addCleanup(front.wait)
        self.addCleanup(front.kill)
        port = int(front.stderr.readline().split()[3])

        def ask(body):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                connection.request("POST", "/mcp", body)
                return connection.getresponse().read()
            except (http.client.RemoteDisconnected, ConnectionResetError):
                return None
            finally:
                connection.close()

        write = b'{"name": "create_issue", "body": 1}'
        self.assertIn(b"asked", ask(b'{"name": "create_issue"}'))
        self.assertIn(b"applied", ask(b'{"name": "get_operation_status", "body": 1}'))
        self.assertIsNone(ask(write))
        self.assertIn(b"applied", ask(write))


if __name__ == "__main__":
    unittest.main()
