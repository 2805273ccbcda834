"""A webhook of somebody else's that gives every pod a sidecar which wants a share of a card.

`python -m tests.e2e.injector CERTIFICATE KEY PORT` serves until it is stopped.
"""

import base64
import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIDECAR = {
    "name": "sidecar",
    "image": "none",
    "resources": {
        "limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "300"},
        "requests": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "300"},
    },
}


class Injector(BaseHTTPRequestHandler):
    """Answers reviews with the sidecar, unless the pod has it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Say that the server is up."""
        self._answer({})

    def do_POST(self) -> None:
        """Answer one review."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        response = {"uid": request["uid"], "allowed": True}
        names = [container["name"] for container in request["object"]["spec"]["containers"]]
        if "sidecar" not in names:
            patch = [{"op": "add", "path": "/spec/containers/-", "value": SIDECAR}]
            response |= {
                "patchType": "JSONPatch",
                "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
            }
        self._answer({**review, "request": None, "response": response})

    def _answer(self, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> None:
    """Serve."""
    certificate, key, port = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Injector)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
