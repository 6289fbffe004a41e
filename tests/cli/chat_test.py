#!/usr/bin/env python3
"""minerva chat as somebody at a terminal meets it: chat_test.py MINERVA GROUP. A pseudo-terminal, and of a terminal's screen as much as
the line reader needs. Times are limits for what hangs; nothing waits for them otherwise."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
import cli_test
import replay
from cli_test import MODEL, Skipped, environment, equal, has, is_error, minerva, put, scratch

FLAGS = ("--temp", "0", "--precision", "exact")
SHORT = FLAGS + ("-n", "3")
LIMIT = 60
UP, DOWN, RIGHT, LEFT, ESC = "\033[A", "\033[B", "\033[C", "\033[D", "\033"
PASTE, PASTED = "\033[200~", "\033[201~"


def columns_of(c):
    if unicodedata.combining(c) or c == "\u200d":
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Screen:
    """Rows of cells, a cursor, and the sequences that are used; a cell of two columns is followed by ''. Anything unknown fails."""

    def __init__(self, columns, rows):
        self.columns, self.rows, self.lines, self.row, self.column, self.rest = columns, rows, [[]], 0, 0, ""

    def feed(self, text):
        text, self.rest = self.rest + text, ""
        at = 0
        while at < len(text):
            c = text[at]
            if c == ESC:
                m = re.compile(r"\033\[([?0-9;]*)([A-Za-z])").match(text, at)
                if not m:
                    assert len(text) - at < 12, repr(text[at:at + 20])
                    self.rest = text[at:]
                    return
                self.control(m.group(1), m.group(2))
                at = m.end()
                continue
            at += 1
            if c == "\r":
                self.column = 0
            elif c == "\n":
                self.down(1)
            elif c == "\b":
                self.column = max(0, self.column - 1)
            elif c == "\t":
                self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
            else:
                assert c >= " ", repr(c)
                self.cell(c)

    def down(self, n):
        self.row += n
        while self.row >= len(self.lines):
            self.lines.append([])

    def cell(self, c):
        width = columns_of(c)
        line = self.lines[self.row]
        if width == 0:
            line[self.column - 1 if line[self.column - 1] else self.column - 2] += c
            return
        if self.column + width > self.columns:
            self.down(1)
            self.column, line = 0, self.lines[self.row]
        line += [" "] * (self.column + width - len(line))
        line[self.column] = c
        if width == 2:
            line[self.column + 1] = ""
        self.column += width

    def control(self, text, letter):
        n = int(text) if text.isdigit() else 1
        top = max(0, len(self.lines) - self.rows)
        if letter == "A":
            assert self.row - n >= top, "above the screen"
            self.row -= n
        elif letter == "B":
            self.down(n)
        elif letter == "C":
            self.column = min(self.column + n, self.columns - 1)
        elif letter == "J":
            del self.lines[self.row + 1:]
            del self.lines[self.row][self.column:]
        elif letter == "K":
            del self.lines[self.row][self.column:]
        else:
            assert letter in "mhl", letter

    def resize(self, columns):
        """As VTE, kitty and others do: rows that became too long are broken again."""
        lines, row, column = [], 0, 0
        for i, line in enumerate(self.lines):
            if i == self.row:
                row, column = len(lines) + self.column // columns, self.column % columns
            parts = [line[at:at + columns] for at in range(0, len(line), columns)] or [[]]
            lines += parts
        self.columns, self.lines, self.row, self.column = columns, lines, row, column
        self.down(0)

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")


class Chat:
    """minerva chat (or another command) on a pseudo-terminal of its own."""

    def __init__(self, *args, command="chat", columns=80, rows=24, env=None, shell=None, model=MODEL, **variables):
        self.master, self.slave = pty.openpty()
        self.size(columns, rows, 0)
        self.output, self.seen, self.screen = "", 0, Screen(columns, rows)
        self.before = termios.tcgetattr(self.slave)
        env = env or environment(TERM="xterm", HOME="/nonexistent", XDG_STATE_HOME="", LC_ALL="C", **variables)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        program = [sys.executable, "-c", shell, cli_test.MINERVA] if shell else [cli_test.MINERVA]
        self.process = subprocess.Popen(program + [command, "-m", model] + list(args), stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env=env, preexec_fn=own_terminal)

    def pid(self):
        """Of the program that a shell started."""
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid)) as f:
            return int(f.read().split()[0])

    def size(self, columns, rows, tell=1):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.screen.resize(columns)

    def read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        text = os.read(self.master, 65536).decode(errors="surrogateescape")
        self.output += text
        self.screen.feed(text)
        return True

    def wait(self, pattern):
        """Until the pattern comes behind what was waited for before."""
        end = time.monotonic() + LIMIT
        while True:
            m = re.compile(pattern, re.S).search(self.output, self.seen)
            if m:
                self.seen = m.end()
                return m
            assert time.monotonic() < end, "%r is not in %r" % (pattern, self.output[self.seen:])
            self.read(1)

    def prompt(self):
        self.wait(r"\033\[\?2004h.*?> ")
        return self

    def send(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        while data:
            data = data[os.write(self.master, data[:2048]):]
            while data and self.read(0):
                pass
        return self

    def shows(self, text, column=None):
        """Until the end of the screen is this text."""
        end = time.monotonic() + LIMIT
        while not (self.screen.text().endswith(text) and column in (None, self.screen.column)):
            assert time.monotonic() < end, "column %s of\n%s" % (self.screen.column, self.screen.text())
            self.read(0.2)
        return self

    def line(self, text):
        self.send(text + "\r")
        return self.prompt()

    def end(self, code=0):
        end = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < end, "does not end: %r" % self.output[self.seen:]
            self.read(0.05)
        while self.read(0):
            pass
        equal(termios.tcgetattr(self.slave), self.before)
        assert self.output.rfind("\033[?2004h") <= self.output.rfind("\033[?2004l"), self.output
        os.close(self.master)
        os.close(self.slave)
        equal(self.process.returncode, code)
        return self.output


def said(chat, folder, role="user"):
    """What the conversation holds, by /save; ends it."""
    path = os.path.join(folder, "saved-%d.json" % time.monotonic_ns())
    chat.line("/save " + path)
    chat.send("/bye\r").end()
    with open(path, encoding="utf-8") as f:
        return [m["content"] for m in json.load(f) if m["role"] == role]


def piped(*args, code=0, stdin="", **more):
    return minerva("chat", "-m", MODEL, *args, stdin=stdin.encode(), code=code, **more)


# ---- typed ----------------------------------------------------------------------------------------------------------
def test_typed_text():
    """Every byte arrives in a C locale, keys do what they do elsewhere, and a byte that is no UTF-8 is an error that costs one line."""
    with scratch() as folder:
        chat = Chat(*SHORT).prompt()
        chat.line("Grüße 日本語 a\u0301 👍")
        chat.line("bcd\x01a\x05e" + LEFT * 2 + "\x7fC" + "\x0b" + "X")  # Home, End, Left, Backspace, Ctrl-K
        chat.line("one two\x17three\x01\x1bd\x19\x19")  # Ctrl-W, Alt-D, Ctrl-Y
        chat.line("日本x" + LEFT * 2 + "\x7f" + "語" + "\033[3~" + "\033[1;5D" + ">")
        chat.line("ab\x14" + "\033Ox\033[99;9~" + "\x00")  # Ctrl-T; sequences and keys that mean nothing leave nothing
        chat.line("e\u0301x" + LEFT + "\x7f")
        chat.send(b"caf\xe9\r")
        chat.wait("UTF-8")
        chat.prompt()
        equal(said(chat, folder), ["Grüße 日本語 a\u0301 👍", "abCX", "oneone three", ">語x", "ba", "x"])


def test_typed_codeset():
    """A terminal of Latin-1: what is typed becomes UTF-8, answers become Latin-1."""
    with scratch() as folder:
        made = subprocess.run(["localedef", "-i", "C", "-f", "ISO-8859-1", folder + "/xx"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not os.path.exists(folder + "/xx/LC_CTYPE"):
            raise Skipped("no localedef sources, %d" % made.returncode)
        env = environment(TERM="xterm", HOME="/nonexistent", XDG_STATE_HOME="", LC_ALL="xx", LOCPATH=folder)
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # the C library keeps what it makes of LOCPATH
        chat = Chat(*SHORT, env=env).prompt()
        chat.send(b"caf\xe9")
        chat.wait("caf\udce9")
        chat.send("\r").prompt()
        equal(said(chat, folder), ["café"])
        ids = minerva("tokenize", "-m", MODEL, "-p", "café", "--json", env=environment(LC_ALL="C")).out
        for text in (b"caf\xe9", "café"):  # what is UTF-8 already stays
            equal(minerva("tokenize", "-m", MODEL, "-p", text, "--json", env=env).out, ids)


def test_typed_interrupt():
    """Ctrl-C clears the line, twice it ends; during an answer it ends the answer, and messages begin lines of their own."""
    with scratch() as folder:
        chat = Chat(*SHORT).prompt()
        chat.send("gone\x03").prompt()
        has(chat.output, "Ctrl-C again")
        chat.line("kept")
        chat.send("\x03").prompt()
        equal(said(chat, folder), ["kept"])
    chat = Chat(*SHORT).prompt()
    chat.send("a\x03").prompt()
    chat.send("\x03")
    chat.end(0)
    Chat(*SHORT).prompt().send("\x04").end(0)
    chat = Chat(*FLAGS, "-n", "-1", "--device", "late", **cli_test.SLOW).prompt()
    chat.send("Tell me a long story.\r")
    chat.wait(r"2004l\r?\n?[^\033]*[a-z]{3}")
    chat.send("\x03").prompt()
    has(chat.output, "^C")
    chat.send("\x04").end(0)
    for line in chat.output.replace("\r", "").split("\n"):
        assert "minerva: " not in line or re.match(r"(\033\[\??[0-9;]*[a-zA-Z])*minerva: ", line), line
    chat = Chat(*SHORT).prompt()
    os.kill(chat.process.pid, signal.SIGTERM)
    chat.end(-signal.SIGTERM)  # the terminal is as it was


def test_typed_blocks():
    with scratch() as folder:
        chat = Chat(*SHORT).prompt()
        chat.send('"""one\r').wait(r"2004h.*?\. ")
        chat.send("/two\r").wait(r"2004h.*?\. ")
        chat.line('three"""')
        chat.send('"""gone\r').wait(r"2004h.*?\. ")
        chat.send("\x03").prompt()
        chat.line('"""/help"""')
        chat.line("1" + PASTE + "a\r\nb\rc\td\033[31m\x07\n" + PASTED + "2")
        chat.line(PASTE + "/usr\nb" + PASTED)
        chat.line("/usr/bin is a folder")
        chat.line("x\033\ry" + UP + "z")  # Alt-Enter, and up within the text
        equal(said(chat, folder), ["one\n/two\nthree", "/help", "1a\nb\nc\td[31m\n2", "/usr\nb", "/usr/bin is a folder", "xz\ny"])
        big = "0123456789\n" * 20000 + "e"
        chat = Chat(*SHORT).prompt()
        equal(said(chat.line("/system " + PASTE + big + PASTED), folder, "system"), [big])


def test_typed_screen():
    """What is seen: rows are broken where the terminal ends, wide characters whole, a resize while typing included."""
    chat = Chat(*SHORT, columns=20, rows=10).prompt()
    chat.send("0123456789abcdef").shows("> 0123456789abcdef", 18)
    chat.send("ghi").shows("> 0123456789abcdefgh\ni", 1)
    chat.send("\x7f").shows("> 0123456789abcdefgh", 0)
    chat.send("\x7f日").shows("> 0123456789abcdefg\n日", 2)
    chat.send("\x01").shows("> 0123456789abcdefg\n日", 2).send("x").shows("> x0123456789abcdefg\n日", 3)
    chat.size(10, 10)
    chat.shows("> x0123456\n789abcdefg\n日", 3)
    chat.send("\x05y").shows("> x0123456\n789abcdefg\n日y", 3)
    chat.size(30, 10)
    chat.send("z").shows("> x0123456789abcdefg日yz", 24)
    chat.send("\x15" + PASTE + "a\nb" + PASTED).shows("> a\n  b", 3)
    chat.send("\x15\x7f\x15" + PASTE + "\n".join(str(i) for i in range(30)) + PASTED).shows("\n".join("  %d" % i for i in range(20, 30)), 4)
    chat.send(UP * 29).shows("> 0\n" + "\n".join("  %d" % i for i in range(1, 10)), 3)
    chat.send("\x03").prompt()
    chat.send("\x04").end(0)
    rows = chat.screen.text().split("\n")
    equal([r for r in rows if "minerva" in r and not r.startswith("minerva: ")], [])


def test_typed_history():
    with scratch() as state, scratch() as folder:
        path = os.path.join(state, "minerva", "chat_history")
        options = dict(TERM="xterm", HOME="/nonexistent", XDG_STATE_HOME=state, LC_ALL="C")
        chat = Chat(*SHORT, env=environment(**options)).prompt()
        chat.line("first é")
        chat.line(PASTE + "two\nlines\\n" + PASTED)
        chat.send("/bye\r").end()
        equal(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        equal(stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode), 0o700)
        chat = Chat(*SHORT, env=environment(**options)).prompt()
        chat.line(UP * 4 + "!")  # one of them within the text of two lines
        chat.line("unsent" + "\x10" * 4 + "\x0e" * 9 + "!")
        chat.line("\x12lines" + "\033[F" + "?")  # Ctrl-R
        equal(said(chat, folder), ["first é!", "unsent!", "two\nlines\\n?"])
        lines = open(path, encoding="utf-8").read()
        has(lines, "first é\ntwo\\nlines\\\\n\n/bye\nfirst é!\n")
        for off in (dict(MINERVA_CHAT_HISTORY="false"), dict(MINERVA_CHAT_HISTORY="Off"), {}):
            chat = Chat(*SHORT, *([] if off else ["--no-chat-history"]), env=environment(**options, **off)).prompt()
            chat.line("secret")
            chat.line(UP + "!")
            equal(said(chat, folder), ["secret", "secret!"])
        equal(open(path, encoding="utf-8").read().count("secret"), 0)
        os.unlink(path)
        os.mkfifo(path)
        chat = Chat(*SHORT, env=environment(**options)).prompt()
        has(chat.output, "not stored in " + path, "regular file")
        chat.line("a")
        chat.send("/bye\r").end()
        os.unlink(path)
        os.symlink(folder + "/elsewhere", path)
        Chat(*SHORT, env=environment(**options)).prompt().line("a").send("/bye\r").end()
        assert not os.path.exists(folder + "/elsewhere")
        os.unlink(path)
        put(state + "/minerva", "chat_history", "".join("entry %d\n" % i for i in range(5000)))
        Chat(*SHORT, env=environment(**options)).prompt().send("/bye\r").end()
        lines = open(path, encoding="utf-8").read().splitlines()
        equal((len(lines), lines[0], lines[-1], stat.S_IMODE(os.stat(path).st_mode)), (1001, "entry 4000", "/bye", 0o600))


def test_typed_dumb():
    """Where nothing can be drawn the terminal's own driver edits, and Ctrl-C means the same."""
    chat = Chat(*SHORT, env=environment(TERM="dumb", HOME="/nonexistent", LC_ALL="C"))
    chat.wait("> ")
    chat.send("gone\x03").wait("Ctrl-C again.*?> ")
    chat.send("/foo\n").wait("unknown command /foo.*?> ")
    chat.send("\x03").wait("Ctrl-C again.*?> ")
    chat.send("\x03").end(0)
    assert "2004" not in chat.output, chat.output


SHELL = """import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    status = os.waitpid(child, os.WUNTRACED)[1]
    os.tcsetpgrp(0, os.getpid())
    if not os.WIFSTOPPED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    print("stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, child)
    os.kill(child, signal.SIGCONT)
"""


def test_typed_stopped():
    """Ctrl-Z leaves the terminal as it was to the shell; back in the foreground the line is there again, also after SIGSTOP."""
    with scratch() as folder:
        chat = Chat(*SHORT, shell=SHELL).prompt()
        for text, stop in (("abc", lambda: chat.send("\x1a")), ("def", lambda: os.kill(chat.pid(), signal.SIGSTOP))):
            chat.send(text)
            chat.wait(text)
            stop()
            chat.wait("stopped\r?\n")
            if text == "abc":
                equal(termios.tcgetattr(chat.slave), chat.before)
            chat.send("\n").prompt()
            chat.wait("abc")
        equal(said(chat.line("g"), folder), ["abcdefg"])


def test_typed_run():
    """minerva run on a terminal: ^C, and statistics on a line of their own."""
    chat = Chat("-p", "Tell me a story.", "-n", "-1", "--ignore-eos", "--device", "late", command="run", **cli_test.SLOW)
    chat.wait(r"seed \d+\r\n[^\r\n]*[a-z]{3} [^\r\n]* [a-z]{2}")
    chat.send("\x03").end(130)
    has(chat.output, "^C")
    assert re.search(r"\nminerva: \d+ prompt tokens", chat.output), chat.output


# ---- commands -------------------------------------------------------------------------------------------------------
def test_commands_table():
    r = piped(*SHORT, code=2, stdin="/frobnicate\n")
    is_error(r, "/frobnicate", "/help", "/bye", "/exit", "/save", "/load", "/system", "/set", "/clear", "/tool")
    is_error(piped(*SHORT, code=2, stdin="/sav x\n"), "/sav", "did you mean /save?")
    is_error(piped(*SHORT, code=2, stdin="/load\n"), "/load", "expected FILE")
    is_error(piped(*SHORT, code=2, stdin="/bye now\n"), "/bye", "now")
    has(piped(*SHORT, stdin="/help\n").err, "/set [NAME VALUE]", "/system", '"""')
    for end in ("/bye", "/exit", "/quit"):
        equal(piped(*SHORT, stdin=end + "\n/frobnicate\n").out, "")


def test_commands_set():
    def last(text, *args):
        return piped(*args, stdin=text).out.splitlines()[-1]
    greedy = last("Tell me a story.\n", *FLAGS, "-n", "8")
    equal(last("/set temp 0\n/set n 8\nTell me a story.\n", "--precision", "exact", "--temp", "5", "-n", "3"), greedy)
    equal(last("/set --temperature=0\nTell me a story.\n", "--precision", "exact", "--temp", "5", "-n", "8"), greedy)
    hot = ("--precision", "exact", "--temp", "3", "-n", "8")
    equal(last("/set seed 7\n/set min_p 0\nTell me a story.\n", *hot), last("Tell me a story.\n", *hot, "--seed", "7", "--min-p", "0"))
    r = piped(*SHORT, stdin="/set top_k 40\n/set show_thinking on\n/set context-full error\n/set\n")
    for line in (r"top_k +40", r"show_thinking +on", r"temp +0", r"top_p +default", r"context_full +error", r"n_predict +3"):
        assert re.search(line + "\n", r.err), r.err
    for bad, *says in [("temp hot", '"hot"', "a number from 0"), ("tmep 1", '"tmep"', "temp, seed"), ("n 0", '"0"'), ("show_thinking maybe", "on or off"),
                       ("temp", '""'), ("seed -1", "0 to 18446744073709551615")]:
        is_error(piped(*SHORT, code=2, stdin="/set " + bad + "\n"), "/set", *says)


def test_commands_files():
    """/save and /load: the conversation goes on as if nothing had been between, calls and numbers of a file as they were."""
    with scratch() as folder:
        path = os.path.join(folder, "c.json")
        first = piped(*FLAGS, "-n", "12", "--system", "Be \"brief\".", stdin="Hé!\n/save %s\nMore.\n/save\n" % path).out
        with open(path, encoding="utf-8") as f:
            messages = json.load(f)
        equal([m["role"] for m in messages], ["system", "user", "assistant", "user", "assistant"])
        equal((messages[0]["content"], messages[1]["content"]), ('Be "brief".', "Hé!"))
        equal(stat.S_IMODE(os.stat(path).st_mode) & 0o777, 0o666 & ~umask())
        put(folder, "d.json", json.dumps(messages[:3]))
        for text, flags in (("/load %s/d.json\nMore.\n" % folder, ()), ("More.\n", ("--history", folder + "/d.json"))):
            again = piped(*FLAGS, "-n", "12", *flags, stdin=text).out
            assert first.endswith(again) and len(again) > 5, (first, again)
        call = '{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.0}}}]}'
        put(folder, "calls.json", '[{"role": "user", "content": "a"},\n %s ,{"role": "tool", "content": "b"}]' % call)
        piped(*SHORT, stdin="/load %s/calls.json\n/save %s/copy.json\n" % (folder, folder))
        with open(folder + "/copy.json", encoding="utf-8") as f:
            has(f.read(), call)
        is_error(piped(*SHORT, code=1, stdin="/save %s\n" % path), path, "existing file")
        is_error(piped(*SHORT, code=2, stdin="/save\n"), "/save")
        is_error(piped(*SHORT, code=1, stdin="/save %s/no/c.json\n" % folder), "/no/c.json")
        is_error(piped(*SHORT, code=1, stdin="/load %s/none.json\n" % folder), "none.json")
        put(folder, "bad.json", '[{"content": ""}]')
        is_error(piped(*SHORT, code=1, stdin="/load %s/bad.json\n" % folder), "bad.json", '"role"')


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_commands_system():
    with scratch() as folder:
        def messages(text, *args):
            path = os.path.join(folder, "%d.json" % time.monotonic_ns())
            r = piped(*SHORT, *args, stdin=text + "/save %s\n" % path)
            with open(path, encoding="utf-8") as f:
                return [(m["role"], m["content"]) for m in json.load(f)], r
        got, _ = messages("Hi\n/system Be brief.\n/system\nMore\n")
        equal((got[0], [m[0] for m in got]), (("system", "Be brief."), ["system", "user", "assistant", "user", "assistant"]))
        got, _ = messages("Hi\n/system B\n/clear\n", "--system", "A")
        equal(got, [("system", "B")])
        got, r = messages('/system ""\n/system\n', "--system", "A")
        equal(got, [])
        has(r.err, "no system message")
        one = piped(*FLAGS, "-n", "9", "--system", "Be brief.", stdin="Hi\n").out
        equal(piped(*FLAGS, "-n", "9", stdin="/system Be brief.\nHi\n").out, one)


# ---- context --------------------------------------------------------------------------------------------------------
def test_context_full():
    """The oldest turns go, with one line each time; the system message and the newest turn stay, and the file keeps everything."""
    with scratch() as folder:
        path = folder + "/all.json"
        lines = ["Turn %d is about a fox and a silver key." % i for i in range(12)]
        flags = FLAGS + ("-n", "20", "-c", "160", "--system", "Be brief.")
        r = piped(*flags, stdin="\n".join(lines) + "\n/save %s\n" % path)
        says = re.findall(r"minerva: the context of 160 tokens is full: .*oldest turn.*", r.err)
        assert 1 <= len(says) < 12, r.err
        with open(path, encoding="utf-8") as f:
            messages = json.load(f)
        equal([m["content"] for m in messages if m["role"] == "user"], lines)
        assert all(m["content"] for m in messages), messages
        # what the model saw in the last turn: the system message and some of the newest turns
        last = messages[-1]["content"]
        fitting = [minerva("run", "-m", MODEL, *flags[:-2], "--history", json.dumps(messages[:1] + messages[at:-1]), "--json", code=None) for at in range(1, 24, 2)]
        assert last in [m.json()["text"] for m in fitting if m.code == 0], r.err
        r = piped(*flags, "--context-full", "error", code=1, stdin="\n".join(lines) + "\n")
        has(r.err, "the context 160")
        assert "oldest" not in r.err
        r = piped(*flags, code=1, stdin="Hi\n" + "word " * 200 + "\n")  # the newest turn alone does not fit
        has(r.err, "the context 160")
        assert "oldest" not in r.err, r.err


# ---- answers on a terminal ------------------------------------------------------------------------------------------
CODE = "int main(void) { return 0; } /* a line that is longer than a row, **not bold** */\n\n\tputs(\"x\");"
ANSWER = "# A *title*\n\nSome **bold words** and `code` that are wrapped between words, 2 * 3 * 4.\n\n- one item that is longer than a row of it\n\n```c\n" + CODE + \
    "\n```\n\n\\(a_b*c*\\) \x1b[2J\x1b]0;title\x07 end"


def saying(folder, *texts):
    """A model in folder that says text n when the turn is turn(n): only its length counts."""
    model = replay.Replay(folder, "<|go|>{{ messages[-1].content }}")
    model.save(texts)
    return lambda n: "x" * (model.at(n) - 1)


def answer_of(output):
    """What came between the line that was sent and the next prompt."""
    return output[output.rindex("\033[?2004l"):output.rindex("\033[?2004h")] if output.count("\033[?2004h") else output


def test_styled_answer():
    """Markdown becomes styles, rows end between words, code is as it was; nothing moves the cursor, and the model sends no control character."""
    with scratch() as folder:
        turn = saying(folder, ANSWER)
        chat = Chat(*FLAGS, "-n", "-1", columns=30, model=folder).prompt()
        chat.send(turn(0) + "\r")
        chat.wait("end")
        begin = chat.output.rindex("\033[?2004l") + len("\033[?2004l")
        chat.prompt()
        text = chat.output[begin:chat.output.rindex("\033[?2004h")]
        equal(set(re.findall(r"\033\[[0-9;]*(.)", text)), {"m"})  # written once: no cursor that moves, no row that is erased
        assert "\033]" not in text and "\a" not in text and "\033[2J" not in text, text
        has(text, "\033[0;1;4;35mA", "\033[0;1mbold", "\033[0;36mcode", "^[[2J^[]0;title^G", "\\(a_b*c*\\)")
        plain = re.sub(r"\033\[[0-9;]*m", "", text).replace("\r", "")
        has(plain, CODE)
        rows = plain[:plain.index("```c")].split("\n")
        assert max(map(len, rows)) <= 30, rows
        equal([w for row in rows for w in row.split()], "A title Some bold words and code that are wrapped between words, 2 * 3 * 4. • one item that is longer than a row of it".split())
        assert any(row.startswith("  ") and row.strip() for row in rows), rows  # the second row of the item
        assert text.rstrip().endswith("end") or "\033[0m" in text[-12:], text
        chat.send("/bye\r").end()


def test_styled_off():
    """Without colours words are wrapped and marks stay; with --plain the text is as it is, but for control characters; a pipe has all of it."""
    with scratch() as folder:
        turn = saying(folder, ANSWER)
        chat = Chat(*FLAGS, "-n", "-1", columns=30, model=folder, NO_COLOR="1").prompt()
        chat.send(turn(0) + "\r").prompt()
        output = chat.send("/bye\r").end()
        has(output.replace("\r", ""), "# A *title*", "**bold", CODE)
        assert not re.search(r"\033\[[0-9;]*m", output), output
        rows = output.replace("\r", "").split("# A *title*")[1].split("```c")[0].split("\n")
        assert max(map(len, rows)) <= 30, rows
        for how in (["--plain"], []):
            chat = Chat(*FLAGS, "-n", "-1", *how, columns=30, model=folder).prompt()
            if not how:
                chat.line("/set plain on")
            chat.send(turn(0) + "\r")
            chat.wait("end\r\n")
            has(chat.output.replace("\r", ""), ANSWER.replace("\x1b", "^[").replace("\x07", "^G"))
            chat.prompt().send("/bye\r").end()
        r = minerva("chat", "-m", folder, *FLAGS, "-n", "-1", stdin=(turn(0) + "\n").encode(), code=0)
        equal(r.out, ANSWER + "\n")


def test_styled_interrupt():
    """Ctrl-C ends an answer within a span: what was held is shown, styles end."""
    with scratch() as folder:
        turn = saying(folder, "begin **" + "word " * 400)
        chat = Chat(*FLAGS, "-n", "-1", "--device", "late", model=folder, **cli_test.SLOW).prompt()
        chat.send(turn(0) + "\r").wait("begin")
        chat.send("\x03").prompt()
        chat.send("\x04").end(0)
        for line in chat.output.replace("\r", "").split("\n"):
            assert "minerva: " not in line or re.match(r"(\033\[\??[0-9;]*[a-zA-Z])*minerva: ", line), line


def test_commands_regen():
    """/regen: the next seed's answer in place of the last one, also behind earlier turns; /undo: as if the turn had not been."""
    hot = ("--precision", "exact", "--temp", "1.3", "-n", "400")  # answers to "What?" are short
    with scratch() as folder:
        def answers(text, *flags):
            path = os.path.join(folder, "%d.json" % time.monotonic_ns())
            piped(*hot, *flags, stdin=text + "\n/save " + path + "\n")
            with open(path, encoding="utf-8") as f:
                return [m["content"] for m in json.load(f) if m["role"] == "assistant"], path
        first, path = answers("What?", "--seed", "1")
        others = [answers("What?", "--seed", seed)[0] for seed in ("2", "3")]
        assert first not in others and others[0] != others[1]
        equal(answers("What?\n/regen", "--seed", "1")[0], others[0])
        equal(answers("What?\n/regen\n/regen", "--seed", "1")[0], others[1])
        want = answers("What?", "--seed", "2", "--history", path)[0]
        equal(answers("What?\nWhat?\n/regen", "--seed", "1")[0], want)
        equal(answers("What?\nHello.\n/undo\nWhat?", "--seed", "1")[0], answers("What?\nWhat?", "--seed", "1")[0])
        equal(answers("Hello.\n/undo\nWhat?", "--seed", "1")[0], first)
        equal(answers("What?\nWhat?\n/undo\n/undo", "--seed", "1")[0], [])
        for bad in ("/regen", "/undo", "Hi\n/undo\n/undo", "Hi\n/undo\n/regen"):
            has(piped(*SHORT, code=2, stdin=bad + "\n").err, "error: /" + bad.rsplit("/", 1)[1], "expected one to")


def test_commands_model():
    """/model: the conversation goes on with another model; with the old one where that cannot be."""
    with scratch() as folder:
        saved = os.path.join(folder, "saved.json")
        os.mkdir(folder + "/other")
        turn = saying(folder + "/other", "other model")
        chat = Chat(*FLAGS, "-n", "12").prompt()
        chat.line("Tell me a story.")
        chat.line("/model " + folder + "/none")
        has(chat.output, "error", folder + "/none", "goes on with storyteller")
        chat.line("More.")
        chat.line("/model " + folder + "/other")
        has(chat.output, "goes on with other")
        chat.send(turn(0) + "\r")
        chat.wait("other model")
        chat.prompt()
        chat.line("/model")
        has(chat.output, "other (" + folder + "/other)")
        chat.line("/model " + MODEL)
        chat.line("Again.")
        chat.line("/save " + saved)
        chat.send("/bye\r").end()
        with open(saved, encoding="utf-8") as f:
            said = [m["content"] for m in json.load(f)]
        equal((len(said), said[5]), (8, "other model"))
        assert len(said[3]) > 9 and len(said[7]) > 9, said


def test_commands_timings():
    r = piped(*SHORT, stdin="/timings\nHi\n/timings\n/timings on\nHi\n")
    has(r.err, "there is no answer yet")
    equal(len(re.findall(r"prompt: \d+ tokens in [\d.]+ s, [\d.]+ t/s; answer: 3 tokens in [\d.]+ s, [\d.]+ t/s; context: \d+ of 1024", r.err)), 2)
    is_error(piped(*SHORT, code=2, stdin="/timings maybe\n"), "/timings", "maybe")


# ---- piped ----------------------------------------------------------------------------------------------------------
def test_piped_ends():
    equal(piped(*SHORT, stdin="").out, "")
    a = piped(*SHORT, stdin="Hi").out
    equal(piped(*SHORT, stdin="Hi\r\n   \n").out, a)
    assert a
    equal(piped(*SHORT, stdin='"""\nHi\n"""\n').out, a)
    is_error(piped(*SHORT, code=1, stdin='"""\nHi\n'), "standard input: found its end", '"""')
    assert "2004" not in a and "> " not in a
    if os.path.exists("/dev/zero"):
        with open("/dev/zero", "rb") as zero:
            p = subprocess.run([cli_test.MINERVA, "chat", "-m", MODEL], stdin=zero, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), timeout=LIMIT)
        assert p.returncode == 1 and b"MiB" in p.stderr, p
    p = subprocess.Popen([cli_test.MINERVA, "chat", "-m", MODEL, *SHORT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    p.stdin.write(b"Hi\n")
    p.stdin.flush()
    assert os.read(p.stdout.fileno(), 100)
    p.send_signal(signal.SIGINT)  # while a pipe is waited for
    p.communicate(timeout=LIMIT)
    equal(p.returncode, 130)


if __name__ == "__main__":
    cli_test.main(globals())
