/* schema.h -- the front end for JSON Schema; no other front end reads JSON. */
#ifndef MN_GRAMMAR_SCHEMA_H
#define MN_GRAMMAR_SCHEMA_H
#include "grammar/grammar_impl.h"
#include "text/json/json.h"

/* What the schema describes; b holds the rules of any JSON. */
mn_gexpr *mn_gschema_parse(mn_gbuild *b, mn_str source);
/* The properties of such an object as tags; form: 0 MN_GRAMMAR_PARAMETERS, 1 INVOKES, 2 ARGS. */
mn_gexpr *mn_gschema_parse_tags(mn_gbuild *b, mn_str source, uint32_t form);
#endif
