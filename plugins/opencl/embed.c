/* embed.c -- a tool of the build: writes text files as one constant of C. Usage: embed NAME FROM...
 * TO; TO defines `const char NAME[]`, which ends with a NUL. Bytes are written as numbers: a string
 * literal has a limit of its own. */
#include <stdio.h>

/* The bytes of a file; nonzero: it cannot be read. */
static int write_bytes(FILE *to, const char *path) {
    FILE *from = fopen(path, "rb");
    if (!from)
        return 1;
    unsigned n = 0;
    for (int c = fgetc(from); c != EOF; c = fgetc(from)) {
        const char *separator = n % 24 ? " " : "\n";
        fprintf(to, "%s%d,", separator, c);
        n++;
    }
    const int bad = ferror(from);
    fclose(from);
    return bad;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: embed NAME FROM... TO\n");
        return 2;
    }
    FILE *to = fopen(argv[argc - 1], "wb");
    if (!to) {
        fprintf(stderr, "embed: cannot write %s\n", argv[argc - 1]);
        return 1;
    }
    fprintf(to, "extern const char %s[];\nconst char %s[] = {", argv[1], argv[1]);
    int bad = 0;
    for (int i = 2; i < argc - 1 && !bad; i++) {
        bad = write_bytes(to, argv[i]);
        if (bad)
            fprintf(stderr, "embed: cannot read %s\n", argv[i]);
    }
    fprintf(to, " 0};\n");
    bad |= ferror(to);
    return fclose(to) || bad;
}
