#!/usr/bin/env python3
"""docs/serving.md is what the server does: doc_test.py MINERVA.

Every line with curl or `minerva bench` runs as written (another port stands for 8080), and succeeds; flags, paths, metrics and fields that
the document names exist; packaging/ and the Containerfile name flags and files that exist."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import fields_table
import served

MINERVA, ROOT = sys.argv[1], served.ROOT
with open(os.path.join(ROOT, "docs", "serving.md"), encoding="utf-8") as f:
    DOC = f.read()


def equal(a, b):
    assert a == b, "%r is not %r" % (a, b)


def shell(command, url, folder, key=None):
    """The command's standard output; curl fails on statuses of errors here."""
    env = dict(served.environment(), CURL_HOME=folder, PATH=os.path.dirname(os.path.abspath(MINERVA)) + ":" + os.environ["PATH"])
    command = command.replace("http://127.0.0.1:8080", url).replace("Bearer KEY", "Bearer %s" % key)
    r = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, timeout=100)
    assert r.returncode == 0, "exit code %d of %s\n%s%s" % (r.returncode, command, r.stdout, r.stderr)
    return r.stdout


def commands():
    """The commands of all sh blocks, with what continues a quote on further lines."""
    for block in re.findall(r"```sh\n(.*?)```", DOC, re.S):
        command = ""
        for line in block.splitlines():
            command += line
            if command.count("'") % 2:
                command += "\n"
                continue
            if command.strip():
                yield command
            command = ""


def test_curl(url, folder):
    seen = 0
    for command in commands():
        if not command.startswith("curl ") or "Bearer KEY" in command:
            continue
        print(command.splitlines()[0][:100], flush=True)
        out = shell(command, url, folder)
        seen += 1
        if '"stream": true' in command:
            assert out.rstrip().endswith("data: [DONE]") and '"usage":{' in out.replace(" ", ""), out[-300:]
        elif "/metrics" in command:
            test_metrics(out)
        else:
            assert isinstance(json.loads(out), dict)
    assert seen >= 8, seen


def test_metrics(text):
    """The table names all metrics and no others."""
    named = set(re.findall(r"`(\w+)`", DOC.split("| name | kind | |")[1].split("\n\n")[0]))
    named -= {"finished_reason", "status", "block_size", "num_gpu_blocks", "enable_prefix_caching"}
    equal(named, {name[len("minerva_"):] for name in re.findall(r"^# TYPE (\w+)", text, re.M)})


def test_paths(url, folder):
    for cell in re.findall(r"^\| (`(?:GET|POST) .*?) \|", DOC, re.M):
        method = None  # of a path that names none, that of the path before it
        for own, path in re.findall(r"`(?:(GET|POST|DELETE) )?(/[\w/-]*)`", cell.replace("NAME", "storyteller")):
            method = own or method
            out = shell("curl -o /dev/null -w '%%{http_code}' --no-fail-with-body -X %s http://127.0.0.1:8080%s" % (method, path), url, folder)
            assert out not in ("404", "405"), (method, path, out)


def test_bench(url, folder):
    for command in commands():
        if command.startswith("minerva bench"):
            print(command, flush=True)
            assert "| users |" in shell(command, url, folder)


def test_flags():
    """Flags of the document and of packaging/ exist."""
    helps = {c: subprocess.run([MINERVA, c, "--help"], capture_output=True, text=True).stdout for c in ("serve", "bench")}
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", helps["serve"] + helps["bench"]))
    texts = re.sub(r"^(curl|podman|sudo) .*$", "", DOC, flags=re.M)
    for path in ("packaging/minerva.service", "deploy/Containerfile"):
        with open(os.path.join(ROOT, path)) as f:
            texts += "\n".join(line for line in f if "minerva" in line and re.search("serve|ENTRYPOINT|SERVE_FLAGS", line)).replace('", "', " ").replace('"', " ")
    used = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(re.findall(r"`[^`\n]+`|minerva .*|ENTRYPOINT.*|MINERVA_SERVE.*", texts))))
    equal(used - known - {"--help", "--now"}, set())


def test_fields():
    """Every field that is read by a function of its own is in the table, and the document has the table."""
    fields_table.main()
    known = {row.name for row in fields_table.rows()}
    for name in ("ask.c", "chat.c", "chat_fields.c", "completion.c", "form.c"):
        with open(os.path.join(ROOT, "tools", "serve", name)) as f:
            read = set(re.findall(r'(?:json_read_\w+|json_field)\(body, "(\w+)"', f.read()))
        equal(read - known, set())


def main():
    if not served.available(MINERVA):
        print("this minerva was built without its server")
        sys.exit(77)
    test_flags()
    test_fields()
    if not shutil.which("curl"):
        print("curl is not installed: the lines of docs/serving.md are not tried")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, ".curlrc"), "w") as f:
            f.write("silent\nshow-error\nfail-with-body\nmax-time = 90\n")
        with served.Server(MINERVA, "--device", "cpu") as s:
            test_curl(s.url, folder)
            test_paths(s.url, folder)
            if "without libcurl" not in subprocess.run([MINERVA, "bench", "--url", s.url, "-p", "0"], capture_output=True, text=True).stderr:
                test_bench(s.url, folder)
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("# the keys\nsecret\n")
            keys.flush()
            with served.Server(MINERVA, "--device", "cpu", "--api-key", keys.name, key="secret") as s:
                for command in commands():
                    if "Bearer KEY" in command:
                        shell(command, s.url, folder, key="secret")


if __name__ == "__main__":
    main()
