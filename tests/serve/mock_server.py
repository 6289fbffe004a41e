"""A server that speaks the OpenAI interface as far as a client of it needs, with known answers: for tests of clients.

Server(**behaviour) listens on a free port of 127.0.0.1 in threads of its own; use it with `with`. Behaviour:
  cut        bytes of each write to the socket (0: one write per event)
  newline    of the event stream
  comments   a comment between events
  ids        token ids as the prompt are accepted
  fail       {number of the request: status}; the request that finds out about ids is number 0
  broken     {number: "error" | "end" | "no_done"}: an error event midway, a closed connection, no [DONE]
  usage      whether usage is sent
  key        the key that is required
It keeps what it was asked in .requests, and the largest number of requests at a time in .most."""
import http.server
import json
import threading
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def error(self, status, message):
        self.answer(status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}})

    def is_refused(self):
        key = self.server.mock.key
        if key is None or self.headers.get("Authorization") == "Bearer " + key:
            return False
        self.error(401, "the key is not valid")
        return True

    def do_GET(self):
        if self.is_refused():
            return
        if self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": "mock-model", "object": "model", "meta": {"n_vocab": 500}}]})
        else:
            self.error(404, "no such path")

    def do_POST(self):
        mock = self.server.mock
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.is_refused():
            return
        with mock.lock:
            number = len(mock.requests)
            mock.requests.append({"path": self.path, **body})
            mock.now += 1
            mock.most = max(mock.most, mock.now)
        try:
            self.complete(mock, number, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with mock.lock:
                mock.now -= 1

    def complete(self, mock, number, body):
        chat = self.path == "/v1/chat/completions"
        if not chat and self.path != "/v1/completions":
            return self.error(404, "no such path")
        if number in mock.fail:
            return self.error(mock.fail[number], "told to fail")
        prompt = body.get("prompt", body.get("messages"))
        if isinstance(prompt, list) and not chat and not mock.ids:
            return self.error(400, "prompt: expected a string")
        text = prompt if isinstance(prompt, str) else prompt[-1]["content"] if chat else None
        n_prompt = len(prompt) if text is None else len(text.split())
        n = body.get("max_tokens", 16)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        broken = mock.broken.get(number)
        if chat:
            self.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        for i in range(n):
            if broken and i == n // 2 and broken != "no_done":
                if broken == "error":
                    self.event({"error": {"message": "lost midway", "type": "server_error"}})
                self.close_connection = True
                return self.wfile.flush()
            piece = "é%d " % i
            choice = {"index": 0, "delta": {"content": piece}} if chat else {"index": 0, "text": piece}
            self.event({"choices": [{**choice, "finish_reason": None}]})
            time.sleep(mock.pause)
        self.event({"choices": [{"index": 0, **({"delta": {}} if chat else {"text": ""}), "finish_reason": "length"}]})
        if mock.usage:
            self.event({"choices": [], "usage": {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n_prompt + n,
                                                 "prompt_tokens_details": {"cached_tokens": n_prompt // 2}}})
        if broken != "no_done":
            self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, value):
        mock = self.server.mock
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        comment = ": still here" + mock.newline * 2 if mock.comments else ""
        data = (comment + "data: " + text + mock.newline * 2).encode()
        step = mock.cut or len(data)
        for at in range(0, len(data), step):
            piece = data[at:at + step]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    disable_nagle_algorithm = True

    def handle_error(self, request, client_address):
        pass  # clients that hang up are part of the tests


class Server:
    def __init__(self, cut=0, newline="\n", comments=False, ids=True, fail=None, broken=None, usage=True, key=None, pause=0.0):
        self.cut, self.newline, self.comments, self.ids, self.usage, self.key = cut, newline, comments, ids, usage, key
        self.pause, self.fail, self.broken = pause, fail or {}, broken or {}
        self.requests, self.now, self.most, self.lock = [], 0, 0, threading.Lock()

    def __enter__(self):
        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.listener.mock = self
        self.url = "http://127.0.0.1:%d" % self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *args):
        self.listener.shutdown()
        self.listener.server_close()
