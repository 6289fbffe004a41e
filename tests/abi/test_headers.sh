#!/bin/sh
# test_headers.sh LANGUAGE COMPILER... -- FLAGS -- HEADER...: each header compiles alone and without a warning.
set -u
lang=$1; shift
cc=; while [ "$1" != -- ]; do cc="$cc $1"; shift; done; shift
flags=; while [ "$1" != -- ]; do flags="$flags $1"; shift; done; shift
bad=0
for header; do
    # shellcheck disable=SC2086 # both are lists
    if printf '#include "%s"\n#include "%s"\nint minerva_header_test;\n' "$header" "$header" | $cc -x "$lang" $flags -fsyntax-only -; then echo "ok $header"
    else echo "FAILED: $header ($lang)"; bad=1; fi
done
exit $bad
