#!/bin/sh
# embed.sh NAME FILE: FILE as C on standard output: const unsigned char NAME[] and const size_t NAME_size.
set -eu
printf '/* made from %s by embed.sh */\n#include <stddef.h>\nextern const unsigned char %s[];\nextern const size_t %s_size;\n' "${2##*/}" "$1" "$1"
printf 'const unsigned char %s[] = {\n' "$1"
od -An -v -tx1 "$2" | sed 's/ \(..\)/0x\1,/g'
printf '};\nconst size_t %s_size = sizeof %s;\n' "$1" "$1"
