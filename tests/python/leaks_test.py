#!/usr/bin/env python3
"""500 models opened, used and closed: neither memory nor open files grow. What is resident goes up and down with what the allocator gives back: the most
during fifty models is compared with the most during the last fifty."""
import ctypes
import os

import minerva

MODELS, FIRST, SPAN, MOST_KIB = 500, 50, 50, 4096


def resident():
    """KiB."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * (os.sysconf("SC_PAGESIZE") // 1024)


def use(i):
    """Answers, constraints, a stream that is dropped midway, an embedding, an error: each frees what it made."""
    with minerva.Model(context=64, parallel=2) as model:
        model.generate("Hi", max_tokens=2)
        if i % 2:
            model.generate("Hi", max_tokens=4, regex="a+")
        if i % 10 == 0:
            next(model.generate("Hi", stream=True))
            model._embed(["Hi"], None, None, 0)
            model.logprobs("Hi")
        if i % 10 == 5:
            try:
                model.generate([1] * 100)
            except minerva.BadInput:
                pass


def main():
    M_ARENA_MAX = -8
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)  # glibc makes one more where threads meet, and keeps it
    kib, files = [], []
    for i in range(MODELS):
        use(i)
        kib.append(resident())
        files.append(len(os.listdir("/proc/self/fd")))
    before, after = max(kib[FIRST:FIRST + SPAN]), max(kib[-SPAN:])
    print("at most KiB from model %d on: %d; at the end: %d; files %d and %d" % (FIRST, before, after, files[FIRST], files[-1]))
    assert after - before < MOST_KIB, "%d KiB more" % (after - before)
    assert files[-1] == files[FIRST]


if __name__ == "__main__":
    main()
