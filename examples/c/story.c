/* story.c -- tells a story, as it is generated: story [MODEL] [PROMPT]
 *
 *   cc story.c $(pkg-config --cflags --libs minerva) -o story */
#include <minerva/minerva.h>
#include <stdio.h>

static int print(void *arg, const char *text, uint64_t n) {
    fwrite(text, 1, n, (FILE *)arg);
    return fflush((FILE *)arg) != 0; /* not 0 ends the answer */
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : NULL; /* NULL: the demo model */
    const char *prompt = argc > 2 ? argv[2] : "Tell me a story.";
    mn_runtime *rt = NULL;
    mn_model *model = NULL;
    mn_session *session = NULL;
    mn_error err = MN_ERROR;
    mn_status st = mn_runtime_create(NULL, &rt, &err);
    if (!st)
        st = mn_model_open(rt, path, &model, &err);
    if (!st)
        st = mn_session_create(model, NULL, &session, &err);
    if (!st)
        st = mn_generate(session, prompt, NULL, print, stdout, &err);
    if (st)
        fprintf(stderr, "%s: %s\n", mn_status_name(st), err.msg);
    else
        putchar('\n');
    mn_session_free(session);
    mn_model_free(model);
    mn_runtime_free(rt);
    return mn_exit_code(st);
}
