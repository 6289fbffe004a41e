#!/usr/bin/env python3
"""./bootstrap night and .ci/run: every part is in one shard, no shard is longer than an hour, what never ran is told, and the figures of the
gate and the night are added; ccache serves every build folder. No part runs. night_test.py"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAILED = []


def check(ok, what):
    print(("ok    " if ok else "FAIL  ") + what)
    if not ok:
        FAILED.append(what)


def bash(script, **env):
    """(status, standard output, standard error) of a script that has read bootstrap and night.sh."""
    p = subprocess.run(["bash", "-c", 'source "$0/bootstrap"; . "$root/tests/dev/night.sh"; ' + script, ROOT], env={**os.environ, **env},
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p.returncode, p.stdout, p.stderr


def shards():
    parts = dict(line.split() for line in bash("night_parts")[1].splitlines())
    for m in (int(bash('echo "$SHARDS"')[1]), 12):
        found = re.findall(r"shard (\d+): (\S+), (\d+) minutes", bash("night --list of %d" % m)[1])
        minutes = {}
        for shard, name, _ in found:
            minutes[shard] = minutes.get(shard, 0) + int(parts[name])
        check(sorted(name for _, name, _ in found) == sorted(parts), "each of %d parts is in one of %d shards" % (len(parts), m))
        check(max(minutes.values()) <= 60, "the longest of %d shards has %d minutes" % (m, max(minutes.values())))
    for words, want in {"2 of 2": "at most 60 are meant", "5 of 4": "expected 1 to 4", "0 of 4": "expected 1 to 4", "x": "expected N of M", "1 of x": "from 1 to 999",
                        "--since never-heard-of": "a date as date(1) reads it", "''": "expected N of M", "today please": "expected N of M",
                        "--list all": "expected N of M", "--list of": "expected N of M", "--list of ''": "from 1 to 999", "--list of 4 5": "expected N of M",
                        "--since yesterday today": "expected N of M", "01 of 4": "expected 1 to 4", "'a[$(echo ran >&2)]' of 4": "expected 1 to 4"}.items():
        code, _, err = bash("night " + words)
        check(code == 1 and want in err and "\nran" not in "\n" + err, "night %s: %s" % (words, want))
    code, _, err = bash("night --list", NIGHT_MINUTES="a[$(echo ran >&2)]")
    check(code == 1 and "expected minutes" in err and "\nran" not in "\n" + err, "NIGHT_MINUTES that are none")
    return parts


def since(parts):
    with tempfile.TemporaryDirectory() as folder:
        env = {"XDG_STATE_HOME": folder}
        check(len(bash("night --since", **env)[1].splitlines()) == len(parts), "at first no part has run")
        quiet = "have_packages() { :; }; night_part() { %s; }; "
        bash(quiet % "passed=$((passed + 1))" + "night_run fuzz 1; night_run tsan 1; finished=1", **env)
        bash(quiet % "failed=$((failed + 1))" + "night_run tidy 1", **env)
        bash(quiet % ":" + "night_run qemu 1", **env)
        never = [line.split()[0] for line in bash("night --since", **env)[1].splitlines()]
        check(sorted(set(parts) - set(never)) == ["fuzz", "tsan"], "parts that failed or were skipped have not run")
        check("fuzz" in bash("night --since tomorrow", **env)[1] and "fuzz" not in bash("night --since yesterday", **env)[1], "since a date")
        code, out, err = bash(quiet % "passed=$((passed + 1))" + "night 1 of 4", NIGHT_MINUTES="0", **env)
        check(code == 0 and out.splitlines()[-1].startswith("0 passed, 0 failed, ") and "no time is left" in err, "parts for which no time is left are skipped")


def damaged(parts):
    """Lines of the record that are no lines of it count as none, and the next one begins anew."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"XDG_STATE_HOME": folder}
        os.mkdir(folder + "/minerva")
        with open(folder + "/minerva/night", "wb") as f:
            f.write(b"yesterday abc tidy passed 3\n" b"1764340000 abc qemu passed\n" b"\0\0\0\0\n" b"1764340000 abc pocl passed x\n" b"1764340000 abc ar")
        check(len(bash("night --since", **env)[1].splitlines()) == len(parts), "damaged lines count as none")
        bash("night_part() { passed=$((passed + 1)); }; night_run fuzz 1", **env)
        check("fuzz" not in bash("night --since", **env)[1], "a line behind a half one")
        with open(folder + "/file", "w", encoding="utf-8"):
            pass
        err = bash("night_part() { passed=$((passed + 1)); }; night_run fuzz 1", XDG_STATE_HOME=folder + "/file")[2]
        check("cannot be written" in err, "a record that cannot be written is told")


def mutants():
    """mutants.py runs nothing unless its words are understood."""
    with tempfile.TemporaryDirectory() as folder:
        for words, code in ((["--help"], 0), ([], 2), (["--quarter", "1"], 2), (["work", "--quarter", "5"], 2), (["work", "word", "--quarter", "1"], 2), (["work", "--check"], 2)):
            p = subprocess.run([sys.executable, ROOT + "/tests/dev/mutants.py", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            check(p.returncode == code and "mutants.py WORK" in p.stdout and not os.listdir(folder), "mutants.py %s" % " ".join(words))


def compiler_cache():
    """The tests have a home of their own; what the compiler has made stays where the user has it."""
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/ccache", "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\ncase $1 in -p) echo '(default) max_files = 0'; echo '(/own/ccache.conf) max_size = 9 GB' ;; -k) echo \"${CCACHE_DIR-/own/cache}\" ;; esac\n")
        os.chmod(folder + "/ccache", 0o755)
        env = {"PATH": folder + ":" + os.environ["PATH"]}
        show = 'unset CCACHE_DIR CCACHE_CONFIGPATH; %stest_environment; echo "$CCACHE_DIR ${CCACHE_CONFIGPATH-}"'
        check(bash(show % "", **env)[1] == "/own/cache /own/ccache.conf\n", "ccache keeps its folder and its settings")
        check(bash(show % "export CCACHE_DIR=/named; ", **env)[1] == "/named /own/ccache.conf\n", "a folder that CCACHE_DIR names stays")


def ci():
    """.ci/run with a bootstrap that only prints."""
    for gate, night, want, want_code in (("12 passed, 0 failed, 1 skipped", "3 passed, 0 failed", "15 passed, 0 failed, 1 skipped", 0),
                                         ("12 passed, 2 failed", "3 passed, 1 failed", "15 passed, 3 failed", 1), ("died", "1 passed, 0 failed", "1 passed, 1 failed", 1)):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(folder + "/.ci")
            with open(ROOT + "/.ci/run", encoding="utf-8") as f, open(folder + "/.ci/run", "w", encoding="utf-8") as to:
                to.write(f.read())
            with open(folder + "/bootstrap", "w", encoding="utf-8") as f:
                f.write('#!/bin/sh\necho "said by $*"\ncase $1 in test) echo "%s" ;; *) echo "%s" ;; esac\n' % (gate, night))
            os.chmod(folder + "/bootstrap", 0o755)
            p = subprocess.run(["bash", folder + "/.ci/run"], stdout=subprocess.PIPE, text=True)
            lines = p.stdout.splitlines()
            check(lines[-1] == want and p.returncode == want_code and lines[0] == "said by test" and "said by night today" in lines,
                  "%s and %s: %s" % (gate, night, lines[-1]))


every = shards()
since(every)
damaged(every)
mutants()
compiler_cache()
ci()
sys.exit(bool(FAILED))
