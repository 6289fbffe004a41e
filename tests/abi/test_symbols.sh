#!/bin/sh
# test_symbols.sh PLUGIN.so...: a plugin exports its entry and nothing else.
command -v nm > /dev/null || { echo "skipped: no nm"; exit 77; }
bad=0
for so; do
    [ -f "$so" ] || continue
    # What the sanitizers and the linker put into every object is not the plugin's.
    got=$(nm -D --defined-only "$so" | sed 's/.* //; s/@.*//' | grep -v -E '^(_init|_fini|__(asan|ubsan|sanitizer|odr_asan|gcov|llvm|start|stop)_?.*|__bss_start|_edata|_end)$')
    if [ "$got" = minerva_plugin_entry ]; then echo "ok $so"; else echo "FAILED: $so exports: $got"; bad=1; fi
done
exit $bad
