#!/usr/bin/env python3
"""500 models opened, used and closed: neither memory nor open files grow after the first fifty."""
import os

import minerva

MODELS, FIRST, MOST_KIB = 500, 50, 4096


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
    for i in range(FIRST):
        use(i)
    before = resident(), len(os.listdir("/proc/self/fd"))
    for i in range(FIRST, MODELS):
        use(i)
    after = resident(), len(os.listdir("/proc/self/fd"))
    print("KiB and files after %d models: %s; after %d: %s" % (FIRST, before, MODELS, after))
    assert after[0] - before[0] < MOST_KIB, "%d KiB more" % (after[0] - before[0])
    assert after[1] == before[1]


if __name__ == "__main__":
    main()
