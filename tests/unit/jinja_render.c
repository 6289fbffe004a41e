/* jinja_render TEMPLATE VARS.json [NOW] -- prints the rendered text; exit code 1 and a message on
 * stderr where it fails. With the single argument "-", reads cases from stdin and answers each: a
 * case is three lines "TEMPLATE-BYTES VARS-BYTES NOW\n", the template, the JSON; an answer is "ok
 * BYTES\n" or "error BYTES\n" and the text. */
#include "text/jinja/jinja.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mn_status render(mn_str source, const char *vars, int64_t now, mn_text *out, mn_error *err) {
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    mn_jinja *t = NULL;
    mn_status status = mn_jinja_parse(source, &t, err);
    if (status == MN_OK)
        status = mn_jinja_render(t, mn_str_of(vars), trusted, now, out, NULL, err);
    mn_jinja_free(t);
    return status;
}

static int answer_all(void) {
    size_t n, m;
    long long now;
    while (scanf("%zu %zu %lld", &n, &m, &now) == 3) {
        getchar();
        char *text = calloc(1, n + 1), *vars = calloc(1, m + 1);
        if (!text || !vars || fread(text, 1, n, stdin) != n || fread(vars, 1, m, stdin) != m)
            return 2;
        mn_text out = {0};
        mn_error err = MN_ERROR_INIT;
        if (render((mn_str){text, n}, vars, now, &out, &err) == MN_OK) {
            printf("ok %zu\n", out.len);
            if (out.len)
                fwrite(out.ptr, 1, out.len, stdout);
        } else
            printf("error %zu\n%s", strlen(err.msg), err.msg);
        fflush(stdout);
        mn_text_free(&out);
        free(text);
        free(vars);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "-"))
        return answer_all();
    if (argc < 3)
        return fprintf(stderr, "usage: jinja_render TEMPLATE VARS.json [NOW] | -\n"), 2;
    char *text = NULL, *vars = NULL;
    uint64_t n = 0, m = 0;
    mn_error err = MN_ERROR_INIT;
    mn_text out = {0};
    mn_status status = mn_read_file(argv[1], 1 << 26, &text, &n, &err);
    if (status == MN_OK)
        status = mn_read_file(argv[2], 1 << 26, &vars, &m, &err);
    if (status == MN_OK)
        status = render((mn_str){text, n}, vars, argc > 3 ? atoll(argv[3]) : 0, &out, &err);
    if (status == MN_OK)
        fwrite(out.ptr ? out.ptr : "", 1, out.len, stdout);
    else
        fprintf(stderr, "%s\n", err.msg);
    mn_text_free(&out);
    mn_free(text);
    mn_free(vars);
    return status != MN_OK;
}
