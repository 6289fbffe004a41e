#!/usr/bin/env python3
"""api_null.py MINERVA_H OUT.inc -- makes the calls of tests/abi/test_api.c from the header.

Every function of minerva.h is called as it is meant to be, then with each pointer NULL alone and with all of them NULL; what must
come of it is the function's own "NULL:" line. Structs that begin with their size are given with 0, one byte too few, as they are,
and larger. A function without such a line, or with a parameter that this does not know, ends the build."""
import re
import sys

# bytes of the first release's structs: never edited, new ones are appended with the bytes of their first release
FIRST = {"mn_runtime_params": 16, "mn_model_params": 8, "mn_model_info": 80, "mn_convert_params": 32, "mn_chat_params": 72,
         "mn_session_params": 44, "mn_session_info": 80, "mn_sample_params": 64, "mn_session_stats": 80, "mn_step_profile": 40,
         "mn_embed_params": 16, "mn_request_params": 64, "mn_request_events": 24, "mn_session_load": 168, "mn_constraint_params": 40,
         "mn_found_item": 56, "mn_hub_name": 48, "mn_hub_choice": 400, "mn_adapter_room": 16, "mn_adapter_item": 656}
FREE = {"mn_runtime": "mn_runtime_free", "mn_model": "mn_model_free", "mn_session": "mn_session_free", "mn_stream": "mn_stream_free", "mn_constraint": "mn_constraint_free", "mn_found": "mn_found_free",
        "int32_t": "mn_ids_free", "char": "mn_json_free"}
# what a parameter is given: by function and name, by name, by type
GIVEN = {("mn_model_load_adapter", "name"): '"a"', ("mn_model_load_adapter", "n"): "1", ("mn_model_unload_adapter", "name"): '"a"',
         ("mn_model_find", "name"): "NULL", ("mn_model_set_alias", "alias"): '"a"', ("mn_model_set_alias", "target"): '""',
         ("mn_model_remove", "name"): '"a"', ("mn_model_remove", "bytes"): "&api_bytes", ("mn_hub_choose", "files"): "api_files",
         ("mn_hub_choose", "n"): "1", ("mn_hub_choose", "chosen"): "api_chosen", "mn_found *": "api_found()", "what": '""', "memory": "0",
         ("mn_session_embed", "s"): "api_embedding()", ("mn_session_embed", "cap"): "4096", ("mn_session_score", "s"): "api_embedding()", ("mn_session_input_sums", "s"): "api_sums(0)", ("mn_session_write_imatrix", "s"): "api_sums(1)", ("mn_session_write_imatrix", "path"): "api_output()", "dataset": '"a"', "n_pairs": "1", ("mn_model_convert", "path"): "api_output()", ("mn_runtime_setting", "key"): '"device"', ("mn_generate", "prompt"): '"a"', ("mn_model_set_template", "chat_template"): '"{{ messages[0].content }}"',
         ("mn_template_render", "source"): '"a"', ("mn_template_render", "vars"): '{"{}", 2}', ("mn_model_chat", "n_messages"): "1",
         ("mn_stream_stop", "n"): "1", "flags": "0", "i": "0", "id": "5", "n_messages": "1", "n_known": "0", "n": "3", "cap": "8", "n_texts": "1",
         "n_keep": "1", "timeout_ms": "0",
         "seq": "0", "signal_number": "0", "address": "api_ids", "path": "NULL", "arg": "NULL", "rows": "api_rows", "print": "api_print", "fn": "api_profile",
         "mn_runtime *": "api_runtime", "mn_model *": "api_model", "mn_session *": "api_session()", "mn_stream *": "api_stream()", "mn_constraint *": "api_constraint()",
         "mn_str": '{"a", 1}', "mn_status": "0"}
FILLED = {"mn_chat_params": ".n_messages = 1, .messages = api_messages", "mn_sample_params": ".max_new = 1",
          "mn_session_params": ".device = api_device, .n_ctx = 64", "mn_convert_params": ".flags = MN_CONVERT_REPLACE",
          "mn_request_params": ".ids = api_ids, .n_ids = 3", "mn_constraint_params": ".kind = MN_CONSTRAINT_JSON"}


def split(text):
    """At commas outside of parentheses."""
    depth, parts = 0, [""]
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip() not in ("", "void")]


def parameter(text):
    """Type without const, and name."""
    m = re.match(r"(.*)\(\*(\w+)\)(\(.*\))$", text)
    if m:
        return "callback", m.group(2)
    m = re.match(r"(.*?)(\w+)$", text)
    kind = re.sub(r"\bconst\b", "", m.group(1))
    kind = re.sub(r"\s+", " ", kind).strip()
    return ("callback" if kind.endswith("_fn") else kind), m.group(2)


class Function:
    def __init__(self, result, name, parameters, comment):
        self.result, self.name = result, name
        self.parameters = [(text, *parameter(text)) for text in split(parameters)]
        self.meaning = {}
        pointers = [n for _, kind, n in self.parameters if self.is_pointer(kind)]
        said = comment.rsplit("NULL: ", 1)[1].rstrip(". ") if "NULL: " in comment else ""
        for part in said.split("; ") if said else []:
            names, meaning = part.split(": ", 1)
            for n in names.split(", "):
                self.meaning[n] = meaning
        if sorted(self.meaning) != sorted(set(pointers) - {"err"}):
            sys.exit("minerva.h: %s: its NULL: line speaks of %s, expected %s" % (name, sorted(self.meaning), sorted(set(pointers) - {"err"})))

    @staticmethod
    def is_pointer(kind):
        return kind.endswith("*") or kind in ("callback", "mn_str")


def functions(text):
    text = re.sub(r"/\*(.*?)\*/", lambda m: "/*" + re.sub(r"\s*\n \*\s?", " ", m.group(1)).strip() + " */", text, flags=re.S)
    pattern = r"(?:/\*([^\n]*?)\*/\n)?MN_API ([^;{]*?)\b(mn_\w+)\(((?:[^()]|\([^()]*\))*)\);"
    for m in re.finditer(pattern, text):
        yield Function(m.group(2).strip(), m.group(3), re.sub(r"\s+", " ", m.group(4)), (m.group(1) or "").strip())


def call(f, without, sized, out):
    """One block that calls f; without: names that are NULL; sized: None or (name, size)."""
    args, before, after = [], [], []
    for text, kind, name in f.parameters:
        own = "a_" + name
        base = kind[:-1].strip()
        if kind == "mn_error *":
            args.append("NULL" if name in without else "&err")
        elif kind == "mn_str":
            value = "{NULL, 1}" if name in without else GIVEN.get((f.name, name), GIVEN[kind])
            before.append("mn_str %s = %s;" % (own, value))
            args.append(own)
        elif Function.is_pointer(kind) and name in without:
            args.append("NULL")
        elif base in FIRST:
            size = "sizeof %s.it" % own if not sized or sized[0] != name else sized[1]
            before.append("union { %s it; char room[sizeof(%s) + 64]; } %s = {.it = {%s}};" % (base, base, own, FILLED.get(base, "0")))
            before.append("%s.it.size = (uint32_t)(%s);" % (own, size.replace("SIZE", "sizeof %s.it" % own)))
            args.append("&%s.it" % own)
        elif (f.name, name) in GIVEN or (name in GIVEN and not (kind.endswith("*") and name in ("n", "seq", "i", "id", "rows"))):
            args.append(GIVEN.get((f.name, name), GIVEN.get(name)))
        elif kind in GIVEN:
            before.append("%s %s = %s;" % (kind, own, GIVEN[kind]))
            args.append(own)
        elif kind == "int32_t *" and re.search(r"\bconst\b", text):
            args.append("api_ids")
        elif kind == "mn_message *":
            args.append("api_messages")
        elif kind == "mn_adapter_source *":
            args.append("api_adapters")
        elif kind == "mn_embed_text *":
            args.append("api_texts")
        elif kind == "float *":
            args.append("api_vector")
        elif kind == "mn_str *" and re.search(r"\bconst\b", text):
            args.append("api_strings")
        elif kind == "mn_token *":
            before.append("mn_token %s[8];" % own)
            args.append(own)
        elif f.name in ("mn_ids_free", "mn_json_free"):
            args.append("NULL")
        elif kind.endswith("**") and re.search(r"\bconst\b", text):  # the library's own
            before.append("const %s *%s = NULL;" % (kind[:-2].strip(), own))
            args.append("&" + own)
        elif kind.endswith("**"):
            made = kind[:-2].strip()
            before.append("%s *%s = NULL;" % (made, own))
            after.append("%s(%s);" % (FREE[made], own))
            args.append("&" + own)
        elif kind.endswith("*") and not re.search(r"\bconst\b", text):
            before.append("%s %s;" % (base, own))
            before.append("memset(&%s, 0, sizeof %s);" % (own, own))
            args.append("&" + own)
        else:
            sys.exit("api_null.py: %s: cannot make a %s (%s)" % (f.name, kind, name))
    line = "%s(%s)" % (f.name, ", ".join(args))
    how = "as it is" if not without and not sized else "without %s" % ", ".join(without) if without else "size %s of %s" % (sized[1], sized[0])
    title = '"%s, %s"' % (f.name, how)
    meanings = {f.meaning.get(n, "optional") for n in without}
    takes_error = any(k == "mn_error *" for _, k, _ in f.parameters) and "err" not in without
    out.append("{")
    out += ["    " + b for b in before]
    out.append("    begin(%s);" % title)
    if f.result == "mn_status":
        refused = "MN_INVALID" in meanings or (sized is not None and sized[2])
        word = sized[3] if sized else (without[0] if len(without) == 1 else "NULL")
        out.append("    end_status(%s, %d, %s);" % (line, refused, '"%s"' % word if refused and takes_error else "NULL"))
    elif f.result == "void":
        out.append("    %s;" % line)
    elif f.result == "mn_str":
        out.append("    end_true(%s.len == 0 || %d);" % (line, not without))
    elif f.result.endswith("*"):
        out.append("    end_true(*%s == 0 || %d);" % (line, not without))
    else:
        out.append("    end_true(%s == 0 || %d);" % (line, not without))
    out += ["    " + a for a in after]
    out.append("}")


def main():
    text = open(sys.argv[1], encoding="utf-8").read()
    out = ["/* Made by api_null.py from minerva.h. */"]
    structs = re.findall(r"typedef struct \{\s*uint32_t size\b[^}]*\} (\w+);", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    if sorted(structs) != sorted(FIRST):
        sys.exit("minerva.h: structs that begin with their size are %s, expected %s" % (sorted(structs), sorted(FIRST)))
    out += ['_Static_assert(sizeof(%s) >= %d, "structs grow at their end");' % item for item in FIRST.items()]
    out.append("static void call_all(void) {")
    known = list(functions(text))
    assert len(known) == text.count("\nMN_API "), "%d of %d functions are understood" % (len(known), text.count("\nMN_API "))
    for f in known:
        pointers = [n for _, kind, n in f.parameters if Function.is_pointer(kind)]
        call(f, [], None, out)
        for n in pointers:
            call(f, [n], None, out)
        if len(pointers) > 1:
            call(f, pointers, None, out)
        for _, kind, n in f.parameters:
            struct = kind[:-1].strip()
            for size, refused in (("0", 1), (str(FIRST.get(struct, 1) - 1), 1), (str(FIRST.get(struct)), 0), ("SIZE + 64", 0)):
                if kind.endswith("*") and struct in FIRST:
                    call(f, [], (n, size, refused, struct), out)
    out.append("}\n")
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write("\n".join(out))


main()
