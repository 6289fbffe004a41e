/* models_routes.c -- /models/load and /models/unload, as llama-server has them. Both answer at
 * once: what has become of the model is in /models. */
#include "serve/serve.h"

/* The model that the body names; NULL: r is answered. */
static served *model_of_body(serve *s, http_request *r, json_error *e) {
    const char *name = NULL;
    served *m = NULL;
    cJSON *body = json_parse(r->body, r->n_body, e);
    if (body && json_read_string(body, "model", &name, e)) {
        if (name)
            m = models_choose(s, name, e);
        else
            json_fail(e, "model", "model: found none, expected the name of a model");
    }
    cJSON_Delete(body);
    return m;
}

/* Answers {"success": true}, or the error. */
static void models_change(serve *s, http_request *r, int (*how)(served *m, json_error *e)) {
    json_error e = {0};
    mn_text out = {0};
    if (!models_permit(s, r))
        return;
    served *m = model_of_body(s, r, &e);
    if (!m || !how(m, &e)) {
        serve_refuse(s, r, &e);
        return;
    }
    mn_text_puts(&out, "{\"success\":true}\n");
    serve_json(s, r, &out);
}

void route_load(serve *s, http_request *r) {
    models_change(s, r, models_load);
}

void route_unload(serve *s, http_request *r) {
    models_change(s, r, models_unload);
}
