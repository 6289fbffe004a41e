#!/usr/bin/env bash
# vex.sh OBJDUMP LIBRARY: the rows for CPUs without AVX-512 multiply bytes by VPDPBUSD, and no instruction has AVX-512's encoding, whose
# first byte is 62.
set -euo pipefail
code=$("$1" -d "$2" | grep -P '^\s+[0-9a-f]+:\t')
products=$(grep -c vpdpbusd <<< "$code" || true)
wide=$(grep -cP '^\s+[0-9a-f]+:\t62 ' <<< "$code" || true)
echo "$products products of bytes, $wide instructions of AVX-512"
((products > 0 && wide == 0))
