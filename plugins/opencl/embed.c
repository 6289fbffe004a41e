/* embed.c -- a tool of the build: writes a text file as a constant of C. Usage: embed NAME FROM TO;
 * TO defines `const char NAME[]`, which ends with a NUL. Bytes are written as numbers: a string
 * literal has a limit of its own. */
#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: embed NAME FROM TO\n");
        return 2;
    }
    FILE *from = fopen(argv[2], "rb");
    FILE *to = fopen(argv[3], "wb");
    if (!from || !to) {
        fprintf(stderr, "embed: cannot open %s or %s\n", argv[2], argv[3]);
        return 1;
    }
    fprintf(to, "extern const char %s[];\nconst char %s[] = {", argv[1], argv[1]);
    unsigned n = 0;
    for (int c = fgetc(from); c != EOF; c = fgetc(from)) {
        const char *separator = n % 24 ? " " : "\n";
        fprintf(to, "%s%d,", separator, c);
        n++;
    }
    fprintf(to, " 0};\n");
    const int bad = ferror(from) | ferror(to);
    fclose(from);
    return fclose(to) || bad;
}
