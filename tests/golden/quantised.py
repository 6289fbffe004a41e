#!/usr/bin/env python3
"""quantised.py MINERVA: models that the libraries of the formats packed (make_quantised.py), in tests/data/quantised.

Each matrix, written by `convert --type f32`, has the values that the library's own function computes, bit for bit (sums.json); int8 of bitsandbytes, which
rounds twice, to the last bit. Then the device reference gives the same logits for the folder and that file, and cpu_simd in class exact those of the second."""
import array
import hashlib
import json
import os
import subprocess
import sys

import gguf_file
import models

FOLDER = os.path.join(os.path.dirname(models.FIXTURES), "quantised")
PROMPT = [1, 17, 40, 3, 9, 42, 7, 7, 15, 4, 31, 8, 20, 47, 2, 5]


def ulps(found, want):
    """The largest difference in units of the last place."""
    a, b = (array.array("i", array.array("f", v).tobytes()) for v in (found, want))
    return max(abs(x - y) for x, y in zip(a, b))


def check_sums(name, path):
    found = {t[0]: t[3] for t in gguf_file.parts(path)[1]}
    with open(os.path.join(FOLDER, name, "sums.json"), encoding="utf-8") as f:
        sums = json.load(f)
    wrong = []
    for key, want in sums.items():
        if isinstance(want, list):
            far = ulps(array.array("f", found[key][:4 * len(want)]), want)
            if far > 1:
                wrong.append("%s: %d units of the last place" % (key, far))
        elif want and hashlib.sha256(found[key]).hexdigest() != want:
            wrong.append(key)
    models.check(not wrong, "%s: values of %d matrices %s" % (name, len(sums), "; ".join(wrong)))


def main():
    names = sorted(os.listdir(FOLDER))
    models.check(len(names) >= 26, "%d models" % len(names))
    for name in names:
        folder, plain = os.path.join(FOLDER, name), os.path.join(models.place(), "f32.gguf")
        done = subprocess.run([sys.argv[1], "convert", folder, "-o", plain, "--type", "f32", "-q"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        models.check(done.returncode == 0, "%s to f32 %s" % (name, done.stdout.strip()))
        if done.returncode == 0:
            check_sums(name, plain)
            models.same_as_model(name, folder, plain, PROMPT, 2e-6)
    models.finish()


main()
