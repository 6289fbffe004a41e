#!/usr/bin/env python3
"""Mutants: small faults put into the product one at a time, each with the tests that notice it. In the night, and by hand.

  mutants.py --check            whether every old text still stands in its file exactly once, and the tests are those of the build folder
                                MINERVA_BUILD_ROOT, if it is set (status 1: the stale ones)
  mutants.py WORK [WORD...]     runs them all, or those with a WORD in file or note, in WORK/src and WORK/build (kept)
  mutants.py WORK --quarter N   every fourth of them, from the N-th (1 to 4)

Prints one line each: killed by TEST, SURVIVED, STALE or DOES NOT BUILD; status 1 unless all were killed. First their tests have to pass
without any. A mutant of a part that others are linked with takes a minute or two. A survivor wants a test; an old text that is stale wants
the line as it now reads. Patterns are short, so that a change of format leaves them alone."""
import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# file, old text (once in the file), new text, tests that see it, what is wrong
MUTANTS = [
    # runtime/session
    ("runtime/session/kv/pool.c", "    p->refs[page]++;", ";", ["prefix"], "a shared page is not counted"),
    ("runtime/session/kv/pages.c", "(position - window + 1)", "(position - window + 2)", ["windows"], "a window's last page is given back a position early"),
    ("runtime/session/kv/pool.c", "if (page.after <= kv->clock->completed)", "if (page.after <= kv->clock->completed + 1)", ["windows"], "a page is free while the last step that reads it runs"),
    ("runtime/session/kv/snapshot.c", "        mn_page_hold(kv, group, row[i]);", ";", ["kv"], "a fork does not hold its pages"),
    ("runtime/session/kv/state.c", "last->literal <= n_positions", "last->literal", ["states"], "a state of drafts that failed counts as the one in front of them"),
    ("runtime/session/kv/state.c", "p->info[last->page].node >= 0)", "!p)", ["states"], "a state that the prefix cache names is changed in place"),
    ("runtime/session/kv/snapshot.c", "s->engines == kv->engines", "s", ["kv"], "pages of a lost engine are given back to the next one"),
    ("runtime/session/steps/complete.c", "(uint32_t)o.seq, q->n_tokens - 1);\n    }", "(uint32_t)o.seq, q->n_tokens);\n    }", ["session"], "the last id counts as stored"),
    ("runtime/session/steps/step.c", "s->stats.n_prompt += step->n_prompt_rows;\n}", "}", ["failover"], "rows of a lost step are not counted"),
    ("runtime/session/sequence.c", "b->tokens, n_stored, err", "b->tokens, 0, err", ["session"], "a fork has no history to penalise"),
    ("runtime/session/sequence.c", "q->n_tokens -= n;", ";", ["session"], "ids of an extend that failed stay"),
    ("runtime/session/failover.c", "r->n_passed_over++]", "r->n_passed_over]", ["stub run"], "a device that refuses is asked again"),
    ("runtime/session/steps/slots.c", "q->n_draw_enqueued = q->n_drawn;", ";", ["failover"], "ids that a lost device had not drawn are not drawn again"),
    # runtime/engine
    ("runtime/engine/run.c", "MN_MAX((int64_t)size->longest, MIN_BOUND)", "MIN_BOUND", ["segments"], "CTX is no bound of the longest sequence"),
    ("runtime/engine/run.c", "i * per < c.n_tokens", "i * per + per < c.n_tokens", ["windows"], "a page that is begun is not copied"),
    ("runtime/engine/layout.c", "first + (int32_t)k;", "first;", ["windows", "segments"], "small pages of a large one are all the first"),
    ("runtime/engine/weights.c", "p[i].failed_at < worst->failed_at", "p[i].failed_at > worst->failed_at", ["import"], "the last failure of an import is told"),
    ("runtime/engine/boundary.c", "a->from == b->from && !a->map && a->before > b->made;", "false;", ["golden experts gpu_toy"], "what is read together lies at one place"),
    ("runtime/engine/engine.c", "common = common / common_divisor(common, own) * own;", "common = common * own;", ["segments", "windows"], "pages are the product of the devices'"),
    # runtime/negotiate
    ("runtime/negotiate/offer.h", "(128 * decode_us + prefill_us)", "(decode_us + prefill_us)", ["negotiate"], "drawn ids do not outweigh the prompt"),
    ("runtime/negotiate/split_plan.c", "left -= MN_MIN(left,", "left -= 0 * MN_MIN(left,", ["negotiate_split"], "memory of a pool is given twice"),
    ("runtime/negotiate/split_plan.c", "if (bytes > room)", "if (bytes >= room)", ["negotiate_split"], "layers that just fit do not"),
    ("runtime/negotiate/choose.h", "SPLIT_GAIN 1.1", "SPLIT_GAIN 1.0", ["negotiate_split"], "a split that gains nothing is taken"),
    ("runtime/negotiate/auto.c", "sum += 1e18;", "sum += 0;", ["negotiate_split"], "the CPU does not come last"),
    ("runtime/negotiate/segment.c", "+ ahead, page_tokens) + 2)", "+ ahead, page_tokens) + 1)", ["negotiate"], "a window has no page at one end"),
    ("runtime/negotiate/offer.c", "c->contract >= node->contract", "c->contract > node->contract", ["negotiate"], "a contract's own version is too old"),
    ("runtime/negotiate/crossing.c", "+= bytes - p->bytes;", "+= 0;", ["negotiate_split"], "tensors that cross need no room"),
    ("runtime/negotiate/crossing.c", "p->last >= c->first", "p->last > c->first", ["golden experts 99"], "memory has the next tensor while the last one is read"),
    ("runtime/negotiate/options.c", "score < best->score", "score > best->score", ["negotiate_experts"], "the slowest placement of experts is chosen"),
    ("runtime/negotiate/streams.c", "bus_us = share * bytes / rate", "bus_us = share / rate", ["stub run"], "experts are copied in no time"),
    ("runtime/engine/stream_run.c", "pair / (int32_t)g->n_chosen;", "pair;", ["golden streamed gpu_toy"], "streamed experts read other rows"),
    ("runtime/engine/stream_rooms.c", "(uint64_t)lo * (uint64_t)p->stride[0];", "0 * (uint64_t)lo;", ["golden streamed gpu_toy"], "the first experts are in all rooms"),
    ("runtime/negotiate/rates.c", "out[n - 1].bytes < total / 20", "out[n - 1].bytes < total / 2", ["cli devices"], "types with a large share are not measured"),
    # runtime/registry
    ("runtime/registry/note.c", "if (end > n)", "if (end > n + 1)", ["note"], "a note reaches a byte over its segment"),
    ("runtime/registry/lost.c", "s->delay_ns * 2", "s->delay_ns", ["comeback"], "the delay of a device that stays lost does not grow"),
    ("runtime/registry/lost.c", "s->users--;", ";", ["comeback"], "a device that was lost is in use for ever"),
    ("runtime/registry/search.c", "r->file_dev == rec->file_dev)", "r->file_dev != rec->file_dev)", ["registry"], "the same plugin by another path is loaded again"),
    ("runtime/registry/plugin_file.c", "if (end > bytes)", "if (end > bytes + 4096)", ["registry"], "a plugin that is cut short is opened"),
    ("runtime/registry/lost.c", "now - s->revived_ns > reg->most_delay_ns", "now - s->revived_ns < reg->most_delay_ns", ["comeback"], "a device that was well for long waits as one that fails again"),
    # runtime/model, runtime/graph
    ("runtime/model/rope.c", "hi = ceil(hi)", "hi = floor(hi)", ["rope"], "YaRN's ramp ends a pair early"),
    ("runtime/model/rope.c", "lo = floor(lo)", "lo = ceil(lo)", ["rope"], "YaRN's ramp begins a pair late"),
    ("runtime/model/rows.c", "cut.ptr = (const char *)p->ptr + skipped;", "cut.ptr = p->ptr;", ["golden reference"], "every part of fused rows is the first"),
    ("runtime/graph/graph_pieces.c", "height = greatest_divisor(height, p[i].lo % rows_of_part(t));", "(void)p[i].lo;", ["units"], "a cut that begins inside a part has parts of two heights"),
    ("runtime/graph/graph_weights.c", "return e && g->asked[", "return e && !g->asked[", ["bad models", "bad families"], "a bias that nobody adds is no error"),
    # plugins/common
    ("plugins/common/arena.c", "o->last < x->first", "o->last <= x->first", ["plugin_common"], "an output lies on the input of its node"),
    ("plugins/common/arena.c", "o->place >= at + x->bytes", "o->place > at + x->bytes", ["plugin_common"], "a gap that just fits is not used"),
    ("plugins/common/bind.c", "b->bytes <= e.bytes - b->offset", "b->bytes <= e.bytes", ["plugin_common"], "a binding reaches over its buffer"),
    ("plugins/common/units.c", "if (is_member(u, m) && share_state(l->g, m, node))", "if (is_member(u, m) && !l)", ["plugin_common"], "a node passes one that writes its state"),
    ("plugins/common/source.c", "if (sum == t->dim[0])", "if (sum <= t->dim[0])", ["plugin_common"], "a weight whose parts lack rows is taken"),
    ("plugins/common/source.c", "*last <= p->bytes", "*last <= p->bytes + 1", ["plugin_common"], "strides reach a byte over their plane"),
    # plugins/cpu_simd
    ("plugins/cpu_simd/attention.c", "pos - a->window + 1", "pos - a->window", ["cpu_simd"], "a window sees a position more"),
    ("plugins/cpu_simd/attention.c", "into[1] = into[1] * x + part[1] * y;", "into[1] = into[1] + part[1] * y;", ["cpu_simd"], "sums of chunks are not brought to one maximum"),
    ("plugins/cpu_simd/state.c", "at = u->head % s->n_head_k;", ";", ["cpu_simd"], "heads of q and k in turn are those side by side"),
    ("plugins/cpu_simd/state.c", "r->known_by *= *r->decay;", ";", ["states cpu_simd"], "the state is read before it decays"),
    ("plugins/cpu_simd/state.c", "memcpy(r->to, r->from, (size_t)(r->n * r->cols)", "memcpy(r->to, r->from, (size_t)(0 * r->cols)", ["check cpu_simd"], "a state without rows stays in its first page"),
    ("plugins/cpu_simd/rows_state.c", "sum = load_lanes(bias + i, whole, lanes);", ";", ["cpu_simd_rows"], "a convolution has no bias"),
    ("plugins/cpu_simd/linear.c", "r, j, k0 == 0)", "r, j, true)", ["cpu_simd_rows"], "only the last panel of a long row counts"),
    ("plugins/cpu_simd/misc.c", "if (y != x)", "if (y == x)", ["cpu_simd"], "dims that do not rotate are not copied"),
    ("plugins/cpu_simd/misc.c", ">= kv->max_pages)", "> kv->max_pages)", ["cpu_simd"], "a position behind the page table is stored"),
    ("plugins/cpu_simd/moe.c", "best < 0 || v[e] > v[best];", "best < 0 || v[e] >= v[best];", ["cpu_simd"], "the last of equal experts is chosen"),
    # loaders
    ("loaders/gguf/read.c", "return type != KV_U64 || bits <= INT64_MAX;", "return true;", ["loader gguf"], "a number over 2^63-1 becomes negative"),
    ("loaders/gguf/read.c", "if (t->offset % r->alignment)", "if (0)", ["loader gguf"], "a tensor off its alignment is taken"),
    ("loaders/gguf/model.c", "p->n_meta = r.first_meta;", ";", ["loader gguf"], "keys of later parts count"),
    ("loaders/gguf/model.c", "if (no != part)", "if (no > part)", ["loader gguf"], "a part may say that it is an earlier one"),
    ("loaders/safetensors/config_layers.c", "i >= first && (!period", "i > first && (!period", ["golden configs"], "the first layer after max_window_layers does not slide"),
    ("loaders/safetensors/config_layers.c", "i % period < period - 1", "i % period < period", ["golden configs"], "every layer slides"),
    ("loaders/safetensors/header.c", "n > f->bytes - 8)", "n > f->bytes)", ["loader safetensors"], "a header reaches over the end of its file"),
    ("loaders/safetensors/header.c", "if (covered != f->bytes - data)", "if (covered > f->bytes - data)", ["loader safetensors"], "bytes that no tensor holds are no error"),
    ("loaders/safetensors/f8.c", "C == K / 128 && R == (N + 127) / 128", "C == K / 128", ["bad families"], "scales for fewer rows than there are are taken"),
    ("loaders/safetensors/f8.c", "= lo / n * sc->row", "= 0 * sc->row", ["golden packed f8"], "gate and up have one scale"),
    ("loaders/mlx/mlx.c", "fits && i < last; i++", "fits && i + 1 < last; i++", ["bad families"], "scales of fewer rows than the matrix has are taken"),
    ("loaders/common/planes.c", "m.number != i || ", "", ["bad families"], "an expert that is missing is no error"),
    # dtype
    ("dtype/float.c", "bits += 0xFFFu + (bits >> 13 & 1u);", "bits += 0x1000u;", ["dtype"], "f16 rounds ties away from 0"),
    ("dtype/dequant_k.c", "s[8 + i % 4] >> 2 * (i / 4) & 3;", "s[8 + i % 4] >> 2 * (i / 8) & 3;", ["dtype", "quantise"], "high bits of Q3_K's scales are others'"),
    # runtime/model
    ("runtime/model/canonical.c", "claims[at - 1].confidence < g", "claims[at - 1].confidence <= g", ["bad loaders run"], "of equal claims the later loader goes first"),
    ("runtime/model/canonical.c", "bytes > n - (uint64_t)(ptr - lo)", "bytes > n", ["bad loaders run"], "a plane reaches over the end of its file"),
    ("runtime/model/hparams.c", "h->n_layer == f->attn", "h->n_layer >= f->attn", ["hparams"], "deeper models scale attention by the embedding"),
    # runtime/convert
    ("runtime/convert/pick.c", "i >= 7 * n / 8", "i > 7 * n / 8", ["convert types"], "a layer of the last eighth is quantised as the others"),
    ("runtime/convert/quant.c", "0x7FFFu + (bits >> 16 & 1u)", "0x8000u", ["quantise"], "bf16 rounds ties away from 0"),
    ("runtime/convert/quant_k.c", "round < 2 && d >= 0", "round < 1 && d >= 0", ["quantise"], "scales of a block are not solved for"),
    ("runtime/convert/write.c", "65519.0f", "65503.0f", ["convert errors"], "the largest f16 does not fit an f16"),
    ("runtime/convert/plan.c", "f[i] = f[i] / g[i]", "f[i] = g[i] / f[i]", ["convert f32"], "factors of llama3's scaling are upside down"),
    # runtime/text
    ("runtime/text/tokenizer/bpe.c", "return a->left < b->left;", "return a->left > b->left;", ["tokenizer", "tokenizer_files"], "of equal pairs the last is merged"),
    ("runtime/text/tokenizer/unigram.c", "score <= to->score", "score < to->score", ["tokenizer", "tokenizer_files", "tokenizer_json"], "of equal paths the last is taken"),
    ("runtime/text/tokenizer/added_tokens.c", "while (i < s->n_len && s->len[i] > n)", "while (i < s->n_len && s->len[i] < n)", ["tokenizer"], "the shortest added token is found"),
    ("runtime/text/tokenizer/detokenizer.c", "k <= 3 && k <= n", "k <= 2 && k <= n", ["decoder"], "the start of a character of four bytes is two marks"),
    ("runtime/text/chat/stop_strings.c", "if (open == n)\n                open = at;", "open = at;", ["stream"], "the beginning of a stop string is given out"),
    ("runtime/text/chat/think_tags.c", "strlen(tag) - 1)", "strlen(tag) - 2)", ["stream"], "a tag that lacks one letter is given out"),
    ("runtime/text/chat/channels.c", "if (id == c->channel && ", "if (id == c->channel && !c && ", ["stream"], "the mark of a channel begins no header"),
    ("runtime/text/jinja/access.c", "*found = i >= 0 && i < n;", "*found = i >= 0 && i <= n;", ["jinja", "jinja_oracle"], "there is an element behind the last"),
    ("runtime/text/jinja/access.c", "step < 0 ? n - 1 : n;", "step < 0 ? n : n;", ["jinja", "jinja_oracle"], "a slice backwards begins behind the end"),
    ("runtime/text/jinja/methods.c", "if (from > to) {", "if (from >= to) {", ["jinja", "jinja_oracle"], "nothing is not found in nothing"),
    ("runtime/text/json/scan.c", "(code - 0xd800) << 10", "(code - 0xd800) << 9", ["tokenizer_json"], "characters beyond U+FFFF are others"),
    # plugins/common, plugins/cpu_host
    ("plugins/common/kv.c", "if (mnp_memory_layer(m, i)->layer == layer)", "if (mnp_memory_layer(m, i)->layer >= layer)", ["plugin_common"], "a layer that is not there has the place of another"),
    ("plugins/common/memory.c", "out->n_tokens > l->page_tokens", "out->n_tokens > l->page_tokens + 1", ["plugin_common"], "a copy reaches over its page"),
    ("plugins/common/memory.c", "!n || n != l->n_state", "!n", ["check rules"], "a layer has more numbers than its dims"),
    ("plugins/common/moves.c", "x.block = m->cols.ssm_scan;", "x.block = m->cols.ssm_scan + 1;", ["check cpu_simd"], "columns of a state are taken for those beside"),
    ("plugins/gpu_host/words.c", "if (st || (passed && !backend->word_write))", "if (passed && !backend->word_write)", ["words"], "words of a lost device stay as they are"),
    ("plugins/gpu_host/words.c", "w->value) < 0)", "w->value) <= 0)", ["words"], "a word that has its value is not there yet"),
    ("plugins/cpu_host/states.c", "if (seq[1] <= 0 || seq[0] < 0", "if (seq[0] < 0", ["states reference"], "an unused entry of SEQS is a sequence of slot 0"),
    ("plugins/reference/op_ssm_scan.c", "if (row_pos[t] >= 0)", "if (row_pos[t] >= -1)", ["check reference"], "padding advances a state"),
    ("plugins/cpu_host/chain.c", "} else if (l[i] > l[id[0]])", "} else if (l[i] >= l[id[0]])", ["reference"], "of equal logits the last is a candidate"),
]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def stale(root, mutant):
    """Why the mutant cannot be made, or None."""
    path = os.path.join(root, mutant[0])
    if not os.path.exists(path):
        return "%s is not there" % mutant[0]
    n = read(path).count(mutant[1])
    return None if n == 1 else "%s has %d times: %s" % (mutant[0], n, mutant[1])


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def copy_tree(src):
    """The tracked files as they are in the work tree; what is equal keeps its time."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in names.rstrip("\0").split("\0"):
        here, there = os.path.join(ROOT, name), os.path.join(src, name)
        if os.path.exists(there) and filecmp.cmp(here, there, shallow=False):
            continue
        os.makedirs(os.path.dirname(there), exist_ok=True)
        shutil.copy(here, there)


def prepare(work):
    src, build = os.path.join(work, "src"), os.path.join(work, "build")
    copy_tree(src)
    if not os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run(["meson", "setup", build, src, "-Dtests=enabled", "-Dcuda=disabled"], check=True, stdout=subprocess.DEVNULL)
    return src, build


def verdict(build, tests):
    """meson builds what the tests need, and runs them up to the first that fails."""
    done = run("nice", "meson", "test", "-C", build, "--maxfail=1", "--timeout-multiplier=2", *tests)
    failed = [line for line in done.stdout.splitlines() if " FAIL " in line or " TIMEOUT " in line or "ERROR " in line]
    if "ninja: build stopped" in done.stdout:
        return "DOES NOT BUILD\n" + done.stdout[-2000:]
    if done.returncode and failed:
        return "killed: " + " ".join(failed[0].split())
    return "SURVIVED" if not done.returncode else "?\n" + done.stdout[-2000:]


def passes_without(build, mutants):
    """Whether every test passes that is to see one of these: what fails anyway would count as a kill."""
    result = verdict(build, sorted({name for m in mutants for name in m[3]}))
    if result != "SURVIVED":
        print("without a mutant: " + result, flush=True)
    return result == "SURVIVED"


def try_one(src, build, mutant):
    file, old, new, tests, _ = mutant
    path = os.path.join(src, file)
    text = read(path)
    write(path, text.replace(old, new))
    try:
        return verdict(build, tests)
    finally:
        write(path, text)


def asked():
    """What the command line asks for: check, work, words, quarter (0: all)."""
    ask = argparse.ArgumentParser(usage=__doc__, add_help=False)
    ask.add_argument("-h", "--help", action="store_true")
    ask.add_argument("--check", action="store_true")
    ask.add_argument("--quarter", type=int, choices=range(1, 5), default=0)
    ask.add_argument("work", nargs="?")
    ask.add_argument("words", nargs="*")
    a = ask.parse_args()
    if a.help:
        print(__doc__)
        sys.exit(0)
    if bool(a.work) == a.check or (a.words and a.quarter):
        ask.error("expected --check, WORK [WORD...] or WORK --quarter N")
    return a


def unknown_tests(build):
    """Why no test would see a mutant: one line for each name that no test of a build has."""
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as f:
        known = {t["name"] for t in json.load(f)}
    return ["%s: %s has no test %s" % (m[0], build, name) for m in MUTANTS for name in m[3] if name not in known]


def check():
    """Prints the stale ones; how many."""
    found = [why for why in (stale(ROOT, m) for m in MUTANTS) if why]
    if os.environ.get("MINERVA_BUILD_ROOT"):
        found += unknown_tests(os.environ["MINERVA_BUILD_ROOT"])
    for why in found:
        print("STALE: " + why)
    return len(found)


def chosen(a):
    """The mutants that the command line asks for."""
    if a.quarter:
        return MUTANTS[a.quarter - 1::4]
    return [m for m in MUTANTS if not a.words or any(w in m[0] or w in m[4] for w in a.words)]


def main():
    a = asked()
    if a.check:
        sys.exit(check() != 0)
    mutants = chosen(a)
    if not mutants:
        sys.exit("no mutant has one of these words: " + " ".join(a.words))
    src, build = prepare(os.path.abspath(a.work))
    bad = not passes_without(build, mutants)
    for m in mutants:
        why = stale(src, m)
        result = "STALE: " + why if why else try_one(src, build, m)
        bad += not result.startswith("killed")
        print("%s: %s: %s" % (m[0], m[4], result), flush=True)
    sys.exit(bad != 0)


main()
