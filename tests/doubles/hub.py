"""A model hub on loopback: as much of the Hugging Face hub's protocol as a download speaks, with faults on demand."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """One repository `owner/model`; `files` may be changed while it runs."""

    def __init__(self):
        self.files = {}
        self.refused = None  # (status, error code, message) for every request
        self.cut_after = {}  # file -> bytes of its body, once, before the connection breaks
        self.short = {}  # file -> bytes that its body lacks, every time
        self.delay = 0.0  # before every chunk of a body
        self.asked = []  # (method, path, range)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *given: _Handler(self, *given))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def bodies(self, name):
        """Ranges of the requests for the body of a file."""
        return [reach for method, path, reach in self.asked if method == "GET" and path.endswith("/" + name)]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub, *given):
        self.hub = hub
        super().__init__(*given)

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def log_message(self, *_):
        pass

    def _answer(self, *, body):
        hub, path = self.hub, self.path.partition("?")[0]
        hub.asked.append((self.command, path, self.headers.get("Range")))
        if hub.refused is not None:
            status, code, message = hub.refused
            self._send(
                status,
                json.dumps({"error": message}).encode(),
                {"X-Error-Code": code, "X-Error-Message": message},
            )
        elif path.startswith("/api/models/owner/model/revision/"):
            self._json(
                {"id": "owner/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
            )
        elif path.startswith("/api/models/owner/model/tree/"):
            self._json(
                [
                    {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                    for name, data in hub.files.items()
                ]
            )
        elif path.startswith("/owner/model/resolve/") and path.rpartition("/")[2] in hub.files:
            self._file(path.rpartition("/")[2], body=body)
        else:
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    def _json(self, value):
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, name, *, body):
        data, hub = self.hub.files[name], self.hub
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if not body:
            self._send(200, None, {**headers, "Content-Length": str(len(data))})
            return
        first = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        rest = data[first:]
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        self.send_response(206 if first else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        lacking = hub.short.get(name, 0)
        self.send_header("Content-Length", str(len(rest) - lacking))
        self.end_headers()
        cut = hub.cut_after.pop(name, None)
        sent = rest[: len(rest) - lacking] if cut is None else rest[:cut]
        for start in range(0, len(sent), 1 << 16):
            if hub.delay:
                threading.Event().wait(hub.delay)
            self.wfile.write(sent[start : start + (1 << 16)])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True

    def _send(self, status, data, headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if data is not None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data and self.command != "HEAD":
            self.wfile.write(data)
