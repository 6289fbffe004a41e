"""Heads that two readers could read in two ways, with a second request in the bytes behind them: raw_heads.check(connect).

A proxy in front believes one reading, the server another one; whoever controls a body could then have a second request answered, in the name of the
next client. So nothing behind such a head may be answered: one answer at most, and the connection ends."""
import re
import time

HIDDEN = b"GET /v1/models/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOST = b"Host: localhost\r\n"
N = len(HIDDEN)


def post(fields, body=HIDDEN, line=b"POST /tokenize HTTP/1.1\r\n", host=HOST, end=b"\r\n"):
    return line + host + fields + end + body


def chunked(chunks):
    return post(b"Transfer-Encoding: chunked\r\n", chunks + HIDDEN)


LENGTH = b"Content-Length: %d" % N
ONE = b"5\r\nhello\r\n0\r\n\r\n"
# name: (bytes, whether it has to be 400: else one answer of any kind, or none)
HEADS = {
    "space before the colon": (post(b"Content-Length : %d\r\n" % N), True),
    "tab before the colon": (post(b"Content-Length\t: %d\r\n" % N), True),
    "space before the colon of the coding": (post(b"Transfer-Encoding : chunked\r\n", b"%x\r\n" % N + HIDDEN + b"\r\n0\r\n\r\n"), True),
    "obs-fold": (post(b"X: a\r\n " + LENGTH + b"\r\n"), True),
    "obs-fold by a tab": (post(b"X: a\r\n\t" + LENGTH + b"\r\n"), True),
    "folded length": (post(b"Content-Length:\r\n %d\r\n" % N), True),
    "length continued": (post(b"Content-Length: 5\r\n 0\r\n"), True),
    "white space before the first field": (post(b"", host=b" X: a\r\n" + HOST + LENGTH + b"\r\n"), True),
    "NUL behind the length": (post(b"Content-Length: 5\0\r\n"), False),
    "NUL before the length": (post(b"Content-Length: \0%d\r\n" % N), True),
    "NUL in a name": (post(b"Content-\0Length: %d\r\n" % N), True),
    "NUL in another value": (post(b"X: a\0" + LENGTH + b"\r\n"), False),
    "NUL that begins a line": (post(b"\0" + LENGTH + b"\r\n"), False),
    "NUL and LF": (post(b"X: a\0\n" + LENGTH + b"\r\n", HIDDEN * 2), False),
    "NUL and LF as the end": (post(b"X: a\0\n\0\n", HIDDEN), False),
    "NUL in the path": (post(b"", line=b"GET /health/live\0/x HTTP/1.1\r\n"), True),
    "encoded NUL in the path": (post(b"", line=b"GET /health/live%00/x HTTP/1.1\r\n"), True),
    "NUL in the query": (post(b"", line=b"GET /health/live?a=\0b HTTP/1.1\r\n"), True),
    "bare LF": (post(b"X: a\n" + LENGTH + b"\n", end=b"\n"), True),
    "one bare LF": (post(b"X: a\n" + LENGTH + b"\r\n"), True),
    "bare LF behind the first line": (post(b"", line=b"GET /health/live HTTP/1.1\n"), True),
    "bare LF as the end": (post(b"", end=b"\n"), True),
    "bare CR": (post(b"X: a\r" + LENGTH + b"\r\n"), True),
    "bare CR as the end": (post(b"X: a\r\n\r" + LENGTH + b"\r\n"), True),
    "two Hosts": (post(b"Host: evil.example\r\n"), True),
    "the same Host twice": (post(HOST), True),
    "no Host": (post(b"", host=b""), True),
    "two hosts in one": (post(b"", host=b"Host: localhost, evil.example\r\n"), True),
    "two lengths": (post(LENGTH + b"\r\nContent-Length: 5\r\n"), True),
    "the same length twice": (post(LENGTH + b"\r\n" + LENGTH + b"\r\n"), True),
    "a list of lengths": (post(b"Content-Length: %d, %d\r\n" % (N, N)), True),
    "length and chunks": (post(LENGTH + b"\r\nTransfer-Encoding: chunked\r\n", ONE + HIDDEN), True),
    "chunks and length": (post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", ONE + HIDDEN), True),
    "signed length": (post(b"Content-Length: +%d\r\n" % N), True),
    "negative length": (post(b"Content-Length: -1\r\n"), True),
    "hexadecimal length": (post(b"Content-Length: 0x%x\r\n" % N), True),
    "zeros before the length": (post(b"Content-Length: 00%d\r\n" % N), True),
    "length with a space in it": (post(b"Content-Length: 1 0\r\n"), True),
    "length with a space behind it": (post(b"Content-Length: %d \r\n" % N), True),
    "empty length": (post(b"Content-Length:\r\n"), True),
    "length of 21 digits": (post(b"Content-Length: %d\r\n" % (2**64 + N)), False),
    "coding in upper case and another": (post(b"Transfer-Encoding: gzip, chunked\r\n", ONE + HIDDEN), True),
    "unknown coding": (post(b"Transfer-Encoding: xchunked\r\n", ONE + HIDDEN), True),
    "two codings": (post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", ONE + HIDDEN), True),
    "vertical tab before the coding": (post(b"Transfer-Encoding: \x0bchunked\r\n", ONE + HIDDEN), True),
    "chunks in HTTP/1.0": (post(b"Transfer-Encoding: chunked\r\n", ONE + HIDDEN, line=b"POST /tokenize HTTP/1.0\r\n"), True),
    "a chunk's extension": (chunked(b"5;a=b\r\nhello\r\n0\r\n\r\n"), False),
    "a chunk's extension with LF": (chunked(b"5;\nhello\r\n0\r\n\r\n"), False),
    "a chunk's size with a space": (chunked(b"5 \r\nhello\r\n0\r\n\r\n"), False),
    "a chunk's size 0x5": (chunked(b"0x5\r\nhello\r\n0\r\n\r\n"), False),
    "a chunk's size +5": (chunked(b"+5\r\nhello\r\n0\r\n\r\n"), False),
    "a chunk of bare LF": (chunked(b"5\nhello\n0\n\n"), False),
    "trailers": (chunked(b"5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n"), False),
    "plain chunks": (chunked(ONE), False),
    "another host in the URL": (post(b"", line=b"GET http://evil.example/health/live HTTP/1.1\r\n"), True),
    "a URL of another scheme": (post(b"", line=b"GET ftp://localhost/health/live HTTP/1.1\r\n"), True),
    "no path": (post(b"", line=b"GET health/live HTTP/1.1\r\n"), True),
    "a space in the path": (post(b"", line=b"GET /health/live HTTP/1.1 HTTP/1.1\r\n"), True),
    "two spaces before the path": (post(b"", line=b"GET  /health/live HTTP/1.1\r\n"), False),
    "a name with a quote": (post(b"Content-Length\": 5\r\n"), True),
    "no name": (post(b": 5\r\n"), True),
    "no colon": (post(b"Content-Length 5\r\n"), True),
    "a body that GET has": (post(LENGTH + b"\r\n", line=b"GET /health/live HTTP/1.1\r\n", body=HIDDEN[:-4] + b"\0\0\0\0"), None),
    "a head of more than a page": (post(b"X: " + b"a" * 5000 + b"\r\n", line=b"GET /health/live HTTP/1.1\r\n"), False),
    "many empty lines before": (b"\r\n" * 3000 + post(b"X: " + b"a" * 3000 + b"\r\n", line=b"GET /health/live HTTP/1.1\r\n"), False),
    "empty lines up to the end of the buffer": (b"\r\n" * 18420 + b"GET / HTTP/1.1\r\n", None),
}


# Those that a listener with TLS is tried with; a length that is no number has no answer there.
OVER_TLS = ["space before the colon", "obs-fold", "NUL in another value", "NUL and LF", "bare LF", "two Hosts", "no Host", "two codings", "plain chunks",
            "another host in the URL", "encoded NUL in the path", "bare CR"]


def answers(data):
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", data)]


def read_all(sock):
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except OSError:  # reset: the server had not read all
        pass
    return data


def one(connect, data, pieces=1):
    """The statuses of the answers to the bytes, which are sent in pieces; the connection has ended."""
    with connect() as sock:
        sock.settimeout(60)
        step = max(1, len(data) // pieces)
        try:
            for i in range(0, len(data), step):
                sock.sendall(data[i:i + step])
                if pieces > 1:
                    time.sleep(0.01)
        except OSError:
            pass
        return answers(read_all(sock))


def check(connect, names=None):
    """connect: a new socket."""
    for name, (data, is_400) in HEADS.items():
        if is_400 is None or (names and name not in names):
            continue
        found = one(connect, data)
        assert found == [400] if is_400 else len(found) <= 1, (name, found)
    # in pieces, too: a head that was not seen whole ends its connection
    for name in "NUL behind the length", "bare LF", "obs-fold", "NUL and LF", "two Hosts":
        found = one(connect, HEADS[name][0], 9)
        assert len(found) <= 1, (name, found)
    found = one(connect, post(b"", line=b"GET /health/live HTTP/1.1\r\n"), 3)
    assert found == [200], found
    kept(connect)


def kept(connect):
    """What is in order keeps its connection: several requests on one, also several at once, and a URL of this host."""
    last = b"GET /health/live HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    for data, n in ((post(b"", b"", line=b"GET /health/live HTTP/1.1\r\n") * 3, 3),
                    (post(b"X:no blank\r\nY: \t several\r\nZ:\r\n", b"", line=b"GET http://LOCALHOST/health/live?a=b HTTP/1.1\r\n"), 1),
                    (post(b"Content-Length: 14\r\n", b'{"prompt":"a"}') * 2, 2), (HEADS["a body that GET has"][0], 1)):
        with connect() as sock:
            sock.settimeout(60)
            sock.sendall(data + last)
            found = answers(read_all(sock))
            assert found == [200] * (n + 1), (data[:200], found)
    with connect() as sock:  # nothing behind the end of the library's buffer is read
        sock.settimeout(60)
        try:
            sock.sendall(HEADS["empty lines up to the end of the buffer"][0])
            sock.shutdown(1)
        except OSError:
            pass
        assert len(answers(read_all(sock))) <= 1
