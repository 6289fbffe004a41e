#!/usr/bin/env python3
"""Keys of config.json that have a value of another kind: config_keys.py MINERVA SOURCE_ROOT [--all].

Of every family's fixtures each key, in sections too, becomes each of VALUES in turn, one at a time. Such a model may run or be refused: exit code 0, or 1 and a
message that names the folder, the file, or what the context is. Never a signal, a sanitizer's report, another exit code, or more than a minute. Without
--all a sample, the same in every run, in which each family is."""
import concurrent.futures
import json
import os
import random
import subprocess
import sys
import tempfile

MINERVA, ROOT, ALL = sys.argv[1], sys.argv[2], sys.argv[3:] == ["--all"]
FIXTURES = os.path.join(ROOT, "tests", "data", "fixtures")
VALUES = [None, 1, 1 << 24, 0.5, -3, ["x", 7], {"a": 1}, "word", True, []]
SAME = ("architectures", "model_type", "dtype", "torch_dtype", "transformers_version")  # another model, or read by nobody
SAMPLE, LIMIT_S = 300, 60


def config_of(fixture):
    with open(os.path.join(FIXTURES, fixture, "config.json"), encoding="utf-8") as f:
        return json.load(f)


def paths(section, above=()):
    for key, value in section.items():
        if key not in SAME:
            yield (*above, key)
        if isinstance(value, dict):
            yield from paths(value, (*above, key))


def jobs():
    """(fixture, path, value), once for each family."""
    seen = set()
    for fixture in sorted(os.listdir(FIXTURES)):
        config = config_of(fixture)
        for path in paths(config):
            for value in VALUES:
                what = (config["model_type"], *config["architectures"], path, json.dumps(value))
                if what not in seen:
                    seen.add(what)
                    yield what[0], (fixture, path, value)


def sample():
    """One of each family, then others."""
    draw = random.Random(1)
    by_family = {}
    for family, job in jobs():
        by_family.setdefault(family, []).append(job)
    chosen = [draw.choice(of) for of in by_family.values()]
    others = [job for of in by_family.values() for job in of]
    return chosen + draw.sample(others, SAMPLE - len(chosen))


def run(job):
    """What is wrong; None: nothing."""
    fixture, path, value = job
    source = os.path.join(FIXTURES, fixture)
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(source):
            if name != "config.json":
                os.symlink(os.path.join(source, name), os.path.join(folder, name))
        config = config_of(fixture)
        section = config
        for key in path[:-1]:
            section = section[key]
        section[path[-1]] = value
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        encoder = os.path.exists(os.path.join(source, "golden.json"))
        command = ["embed", "--pooling", "mean"] if encoder else ["run", "-n", "2", "--temp", "0"]
        try:
            p = subprocess.run([MINERVA, *command, "-m", folder, "--prompt-ids", "1,2,3", "--device", "reference"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True, errors="replace", timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return "more than %d s" % LIMIT_S
        said = p.stderr.strip()
        if p.returncode not in (0, 1) or "Sanitizer" in said or "runtime error" in said:
            return "exit code %d: %s" % (p.returncode, said[:1500])
        if p.returncode and not any(word in said for word in (folder, "config.json", "the context")):
            return "a message that names neither folder nor file: " + said[-300:]
    return None


def main():
    todo = [job for _, job in jobs()] if ALL else sample()
    n_wrong = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        for (fixture, path, value), wrong in zip(todo, threads.map(run, todo)):
            if wrong:
                n_wrong += 1
                print("WRONG %s: %s = %s: %s" % (fixture, ".".join(path), json.dumps(value), wrong), flush=True)
    print("%d configs, %d wrong" % (len(todo), n_wrong))
    return bool(n_wrong)


sys.exit(main())
