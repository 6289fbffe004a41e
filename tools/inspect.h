/* inspect.h -- the forms of minerva inspect --graph. */
#ifndef MINERVA_INSPECT_H
#define MINERVA_INSPECT_H
#include "app.h"
#include <cjson/cJSON.h>

/* graph: the JSON of mn_model_graph_json. 0, or the exit code with the error printed. */
int graph_as_text(const cJSON *graph, out_file *out);
int graph_as_dot(const cJSON *graph, out_file *out);
#endif
