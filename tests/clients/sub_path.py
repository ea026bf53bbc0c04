"""A proxy that shows a server under /sub, as `location /sub { proxy_pass ...; }` of others does, with streams passed on as
they come.

    with sub_path.proxy("http://127.0.0.1:8080") as url:  # http://127.0.0.1:PORT/sub
"""
import contextlib
import http.client
import http.server
import threading
import urllib.parse


@contextlib.contextmanager
def proxy(behind):
    place = urllib.parse.urlsplit(behind)

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def pass_on(self):
            if not self.path.startswith("/sub"):
                return self.send_error(404)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server = http.client.HTTPConnection(place.hostname, place.port)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "origin", "connection")}
            server.request(self.command, "/" + self.path[len("/sub"):].lstrip("/"), body or None, headers)
            reply = server.getresponse()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while part := reply.read1(65536):
                    self.wfile.write(part)
            server.close()
            self.close_connection = True

        do_GET = do_POST = pass_on

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/sub"
    finally:
        server.shutdown()
        server.server_close()
