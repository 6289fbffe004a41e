#!/usr/bin/env python3
"""adding_doc.py SOURCE_ROOT: every path that docs/adding.md names is there; a name in capitals stands for any."""
import glob
import os
import re
import sys

root = sys.argv[1]
with open(os.path.join(root, "docs/adding.md"), encoding="utf-8") as f:
    text = f.read()
paths = set(re.findall(r"`((?:[a-z_0-9]+/)+[A-Za-z_0-9.]+)`", text)) | {p for p in re.findall(r"`([a-z_]+\.txt)`", text)}
missing = [p for p in sorted(paths) if not glob.glob(os.path.join(root, re.sub(r"\b(NAME|ISA)\b|(?<=_)(NAME|ISA)(?=\.)", "*", p)))]
for path in missing:
    print("docs/adding.md names %s, which is not there" % path)
print("%d paths" % len(paths))
sys.exit(1 if missing or len(paths) < 30 else 0)
