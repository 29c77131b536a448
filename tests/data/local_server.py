"""A server on this machine, and answers that it can be told to give."""

import contextlib
import http.server
import threading
import time
import zlib


class Server:
    """An HTTP server on this machine that answers with one of `answers` after the other.

    paths and headers: what was asked for; sent: bytes of each body that `serve` sends.
    """

    def __init__(self):
        self.answers, self.paths, self.headers, self.sent = [], [], [], []
        self.closing = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            server_of_test = outer

            def do_GET(self):
                outer.paths.append(self.path)
                outer.headers.append(dict(self.headers))
                answers = outer.answers
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                with contextlib.suppress(OSError):
                    answer(self)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def ranges(self):
        """What each request asked for: its Range header, or None."""
        return [headers.get("Range") for headers in self.headers]

    def close(self):
        self.closing.set()
        self.http.shutdown()
        self.http.server_close()


def etag_of(content):
    return f'"{zlib.crc32(content):08x}"'


def serve(content, *, cut=None, stall=0.0, ranges=True, validate=True, **headers):
    """Like a file server: ranges, ETag and If-Range; more `headers` by name, ETag=None for none.

    cut: the connection ends after so many bytes of the body, `stall` seconds later.
    ranges: False for a server that knows none; validate: False for one that ignores If-Range.
    """
    headers = {"ETag": etag_of(content), **headers}

    def answer(handler):
        asked, tag = handler.headers.get("Range"), handler.headers.get("If-Range")
        known = (headers.get("ETag"), headers.get("Last-Modified"))
        ranged = bool(ranges and asked and (tag is None or not validate or tag in known))
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if ranged else 0
        if ranged and start >= len(content):
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(content)}")
            handler.end_headers()
            return
        handler.send_response(206 if ranged else 200)
        sent = {"Content-Length": str(len(content) - start)}
        if ranged:
            sent["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        for name, value in {**sent, **headers}.items():
            if value is not None:
                handler.send_header(name, value)
        handler.end_headers()
        body = content[start:][:cut]
        # Before the body: whoever has it all may look at once.
        handler.server_of_test.sent.append(len(body))
        handler.wfile.write(body)
        handler.server_of_test.closing.wait(stall)

    return answer


def respond(status=200, body=b"", **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def send(content, length=None):
    return respond(body=content, Content_Length=str(length or len(content)))


def page(kind="text/html; charset=utf-8", body=b"<!DOCTYPE html><title>Log in</title>"):
    return respond(body=body, Content_Type=kind)


def redirect(address, status=302):
    return respond(status, Location=address)


def fail(status, retry_after=None):
    return respond(status, **({} if retry_after is None else {"Retry_After": str(retry_after)}))


def hang(seconds):
    return lambda handler: time.sleep(seconds)
