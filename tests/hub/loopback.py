"""A hub of loopback, in Hugging Face's HTTP interface as huggingface_hub uses it, and a second host that keeps the files of Git LFS.

It has one repository; what it does wrong is an attribute. Requests are kept with their headers. Standard library alone."""
import hashlib
import http.server
import json
import re
import socketserver
import ssl
import threading
import time
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, address):
        pass  # a client that was killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def send(self, status, headers=(), body=b"", with_body=True):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.write(body)

    def write(self, body):
        hub, step = self.server.hub, 1 << 16
        for at in range(0, len(body), step):
            if hub.slow_s:
                time.sleep(hub.slow_s)
            self.wfile.write(body[at:at + step])

    def error(self, status, code=None, message=None, with_body=True, headers=()):
        more = [("X-Error-Code", code)] if code else []
        more += [("X-Error-Message", message)] if message else []
        self.send(status, more + list(headers), b'{"error":"no"}', with_body)

    def answer(self, with_body):
        hub = self.server.hub
        with hub.lock:
            hub.requests.append((self.command, self.server.host, self.path, dict(self.headers.items())))
            early = hub.early.pop(0) if hub.early else None
        if early == "drop":
            self.close_connection = True
            return self.connection.close()
        if early:
            return self.error(early[0], headers=early[1], with_body=with_body)
        if self.server.host == "files":
            return self.file(urllib.parse.unquote(self.path[1:]).split("?")[0], with_body)
        path = urllib.parse.unquote(self.path.split("?")[0])
        if path.startswith("http://"):  # asked as a proxy
            hub.proxied += 1
            path = path[path.index("/", 8):]
        if path.startswith("/old/name"):
            return self.send(307, [("Location", path.replace("/old/name", "/org/story"))], with_body=with_body)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        if api:
            return self.listing(*api.groups(), with_body)
        m = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path) or re.fullmatch(r"/api/resolve-cache/models/([^/]+/[^/]+)/([^/]+)/(.+)", path)
        if m and m.group(1) in hub.repos and self.may(m.group(1), with_body):
            return self.resolve(m.group(3), with_body)
        if not m or m.group(1) not in hub.repos:
            self.error(404, "RepoNotFound", with_body=with_body)

    def may(self, repo, with_body):
        hub = self.server.hub
        given = self.headers.get("Authorization")
        if hub.refuse_tokens and given:
            self.error(401, None, "Invalid credentials in Authorization header", with_body)
        elif repo in hub.gated and given != "Bearer " + hub.token:
            self.error(403 if given else 401, "GatedRepo", "Access to model is restricted", with_body)
        else:
            return True
        return False

    def listing(self, repo, revision, with_body):
        hub = self.server.hub
        if repo == "old/name":
            return self.send(307, [("Location", "/api/models/org/story/revision/" + revision)], with_body=with_body)
        if hub.raw_listing is not None and repo in hub.repos:
            return self.send(200, [("Content-Type", "application/json")], hub.raw_listing, with_body)
        if repo not in hub.repos:
            return self.error(401 if not self.headers.get("Authorization") else 404, "RepoNotFound", "Repository not found", with_body)
        if not self.may(repo, with_body):
            return None
        if revision not in (hub.commit, "main"):
            return self.error(404, "RevisionNotFound", "Invalid rev id", with_body)
        body = json.dumps({"id": repo, "sha": hub.commit, "siblings": [hub.sibling(n) for n in sorted(hub.files)]}).encode()
        return self.send(200, [("Content-Type", "application/json")], body, with_body)

    def resolve(self, name, with_body):
        hub = self.server.hub
        if name not in hub.files:
            return self.error(404, "EntryNotFound", with_body=with_body)
        data = hub.files[name]
        common = [("X-Repo-Commit", hub.lies.get("commit", hub.commit))]
        etag = hub.lies.get("etag", hub.hash(name))
        if hub.own_store and not self.path.startswith("/api/resolve-cache"):
            where = "/api/resolve-cache/models" + self.path.replace("/resolve/", "/", 1)
            return self.send(307, common + [("Location", where), ("ETag", '"%s"' % etag), ("X-Linked-Etag", '"%s"' % etag)], b"Temporary Redirect", with_body)
        if name in hub.lfs:
            where = "http://127.0.0.1:%d/%s?X-Signature=secret" % (hub.files_port, urllib.parse.quote(name))
            return self.send(302, common + [("Location", hub.lies.get("location", where)), ("X-Linked-Etag", '"%s"' % etag),
                                            ("X-Linked-Size", str(hub.lies.get("size", len(data))))], with_body=with_body)
        if not with_body:
            return self.send(200, common + [("ETag", 'W/"%s"' % etag), ("Content-Length", str(len(data)))], with_body=False)
        return self.file(name, True, common + [("ETag", '"%s"' % etag)])

    def file(self, name, with_body, headers=()):
        hub = self.server.hub
        data = hub.sent.get(name, hub.files[name])
        start = 0
        m = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if m and hub.ranges:
            start = int(m.group(1))
            if start >= len(data):
                return self.send(416, list(headers), with_body=with_body)
            headers = list(headers) + [("Content-Range", "bytes %d-%d/%d" % (hub.lies.get("range", start), len(data) - 1, len(data)))]
        part = data[start:]
        with hub.lock:
            cut = hub.cuts.get(name, [])
            cut = cut.pop(0) if cut else None
            hub.active += 1
            hub.most_active = max(hub.most_active, hub.active)
        try:
            if cut is None:
                return self.send(206 if start else 200, headers, part, with_body)
            self.send(206 if start else 200, list(headers) + [("Content-Length", str(len(part)))], part[:cut], with_body)
            self.wfile.flush()
            self.close_connection = True
            return self.connection.close()
        finally:
            with hub.lock:
                hub.active -= 1


class Hub:
    """files: name -> bytes; lfs: names in Git LFS. sent: other bytes than those that were promised; cuts: name -> lengths after which answers break."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    token = "hf_loopback"

    def __init__(self, files, lfs=(), certificate=None):
        """certificate: (file, file of its key) of a hub that speaks HTTPS; its other host does not."""
        self.files, self.lfs = dict(files), set(lfs)
        self.repos, self.gated = {"org/story"}, set()
        self.sent, self.cuts, self.lies, self.early, self.requests = {}, {}, {}, [], []
        self.own_store = False  # files lie behind a redirect inside the hub
        self.slow_s, self.ranges, self.refuse_tokens, self.raw_listing = 0, True, False, None
        self.active = self.most_active = self.proxied = 0
        self.lock = threading.Lock()
        self.servers = []
        for host in ("hub", "files"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.host = self, host
            if certificate and host == "hub":
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.port, self.files_port = (s.server_address[1] for s in self.servers)
        self.url = "http%s://127.0.0.1:%d" % ("s" if certificate else "", self.port)

    def hash(self, name):
        data = self.files[name]
        return hashlib.sha256(data).hexdigest() if name in self.lfs else git_sha1(data)

    def sibling(self, name):
        data = self.files[name]
        item = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
        if name in self.lfs:
            item["lfs"] = {"sha256": self.hash(name), "size": len(data), "pointerSize": 135}
        item.update(self.lies.get("sibling", {}))
        return item

    def authorized(self):
        """(host, token) of requests that brought one."""
        return [(host, headers["Authorization"]) for _, host, _, headers in self.requests if "Authorization" in headers]

    def close(self):
        for s in self.servers:
            s.shutdown()
            s.server_close()
