#!/usr/bin/env bash
# prefetch.sh OBJDUMP LIBRARY...: each unit of product rows still has the prefetches that its source asks for. A compiler may drop
# them without a word, and then decode loses a fifth of the memory's rate.
set -euo pipefail
objdump=$1
shift
failed=0
for library; do
    n=$("$objdump" -d "$library" | grep -cE 'prefetch|prfm' || true)
    echo "${library##*/}: $n prefetches"
    ((n > 0)) || failed=1
done
exit $failed
