#!/bin/sh
# test_opsgen.sh OPSGEN SOURCE_ROOT: plugin.h and docs/ops.md hold what ops.def says.
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
"$1" header > "$tmp/want" && sed -n '/OPS-BEGIN \*\//,/\/\* OPS-END/p' "$2/include/minerva/plugin.h" | grep -v 'OPS-BEGIN\|OPS-END\|clang-format' > "$tmp/got" || exit 1
diff -u "$tmp/got" "$tmp/want" || { echo "plugin.h differs from ops.def: put the output of 'opsgen header' between its OPS markers"; exit 1; }
"$1" docs > "$tmp/want" && diff -u "$2/docs/ops.md" "$tmp/want" || { echo "docs/ops.md differs from ops.def: replace it by the output of 'opsgen docs'"; exit 1; }
