/* Input: a plugin's file, of which the notes are read. */
#include "fuzz.h"
#include "registry/internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    mn_plugin_note note;
    int fd = memfd_create("note", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    mn_plugin_note_read(fd, &note, NULL);
    fuzz_accepted = note.found;
    close(fd);
    if (!memchr(note.id, 0, sizeof note.id) || !memchr(note.isa, 0, sizeof note.isa))
        abort();
    mn_isa_check(note.isa, NULL);
    memset(&note, 0, sizeof note);
    mn_notes_parse(data, n, n & 8, &note, NULL);
    return 0;
}
