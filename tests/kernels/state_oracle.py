#!/usr/bin/env python3
"""CONV_STATE, SSM_SCAN and GATED_DELTA by the formulas of docs/ops.md, in f64, row by row: the oracle of tests/kernels/state_vectors.h, with the standard library alone.

    state_oracle.py --header > tests/kernels/state_vectors.h   cases for C: inputs, results, and the state behind the last row
    state_oracle.py --check tests/kernels/state_vectors.h      the numbers of that file are those that this script computes
    state_oracle.py --transformers                             the formulas are those of Transformers, in chunks and row by row (needs torch, transformers)

Arrays are lists of lists in the order of the shape in a comment beside them; a sequence begins with a state of zeros. The state of a convolution is its last
inputs [W - 1, C], the oldest first; of a scan [H, P, N]; of the delta rule [Hv, Dk, Dv]."""
import math
import re
import struct
import sys


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def zeros(*shape):
    return [zeros(*shape[1:]) for _ in range(shape[0])] if shape else 0.0


# ---- the operations: each returns y and the state behind the last row ----------------------------

def conv_state(x, weight, bias=None, state=None):
    """x [T, C], weight [C, W], bias [C], state [W - 1, C] -> y [T, C]"""
    width, n_channel = len(weight[0]), len(weight)
    seen = [row[:] for row in (state or zeros(width - 1, n_channel))] + [row[:] for row in x]
    y = [[(bias[c] if bias else 0.0) + math.fsum(weight[c][j] * seen[t + j][c] for j in range(width)) for c in range(n_channel)] for t in range(len(x))]
    return y, seen[len(x):]


def ssm_scan(x, b, c, dt, a, d, dt_bias, a_log=False, dt_min=0.0, dt_max=0.0, state=None):
    """x [T, H, P], b, c [T, G, N], dt [T, H], a, d, dt_bias [H], state [H, P, N] -> y [T, H, P]"""
    n_head, width, n_group, n_state = len(x[0]), len(x[0][0]), len(b[0]), len(b[0][0])
    s = [[row[:] for row in head] for head in (state or zeros(n_head, width, n_state))]
    y = zeros(len(x), n_head, width)
    for t in range(len(x)):
        for h in range(n_head):
            g = h // (n_head // n_group)
            step = max(softplus(dt[t][h] + dt_bias[h]), dt_min)
            step = min(step, dt_max) if dt_max else step
            decay = math.exp(step * (-math.exp(a[h]) if a_log else a[h]))
            for p in range(width):
                s[h][p] = [decay * s[h][p][n] + step * x[t][h][p] * b[t][g][n] for n in range(n_state)]
                y[t][h][p] = math.fsum(s[h][p][n] * c[t][g][n] for n in range(n_state)) + d[h] * x[t][h][p]
    return y, s


def unit(v, eps):
    return [e / math.sqrt(math.fsum(o * o for o in v) + eps) for e in v] if eps else v


def gated_delta(q, k, v, gate, beta, a, dt_bias, tiled=False, a_log=False, eps=0.0, scale=0.0, beta_scale=0.0, state=None):
    """q, k [T, Hk, Dk], v [T, Hv, Dv], gate [T, Hv] or [T, Hv, Dk], beta [T, Hv], a [Hv], dt_bias [Hv] or [Hv, Dk], state [Hv, Dk, Dv] -> y [T, Hv, Dv]"""
    n_k, dim_k, n_v, dim_v = len(q[0]), len(q[0][0]), len(v[0]), len(v[0][0])
    s = [[row[:] for row in head] for head in (state or zeros(n_v, dim_k, dim_v))]
    y = zeros(len(q), n_v, dim_v)
    for t in range(len(q)):
        for h in range(n_v):
            at = h % n_k if tiled else h // (n_v // n_k)
            rate = -math.exp(a[h]) if a_log else a[h]
            each = isinstance(gate[t][h], list)
            decay = [math.exp(rate * softplus(gate[t][h][i] + dt_bias[h][i] if each else gate[t][h] + dt_bias[h])) for i in range(dim_k)]
            qn, kn = unit(q[t][at], eps), unit(k[t][at], eps)
            write = (beta_scale or 1.0) * sigmoid(beta[t][h])
            s[h] = [[decay[i] * s[h][i][j] for j in range(dim_v)] for i in range(dim_k)]
            u = [write * (v[t][h][j] - math.fsum(s[h][i][j] * kn[i] for i in range(dim_k))) for j in range(dim_v)]
            s[h] = [[s[h][i][j] + kn[i] * u[j] for j in range(dim_v)] for i in range(dim_k)]
            y[t][h] = [(scale or dim_k ** -0.5) * math.fsum(s[h][i][j] * qn[i] for i in range(dim_k)) for j in range(dim_v)]
    return y, s


# ---- cases for C ---------------------------------------------------------------------------------

class Numbers:
    """Numbers that F32, F16 and short decimals hold exactly: multiples of 1 / 64."""

    def __init__(self, seed):
        self.at = seed

    def one(self, lo, hi):
        self.at = (self.at * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return round((lo + (hi - lo) * (self.at >> 40) / (1 << 24)) * 64) / 64

    def array(self, shape, lo=-2.0, hi=2.0):
        return [self.array(shape[1:], lo, hi) for _ in range(shape[0])] if shape else self.one(lo, hi)


def flat(x):
    return [e for row in x for e in flat(row)] if isinstance(x, list) else [x]


CONV = [dict(name="channels with a bias", T=6, C=5, W=4, bias=True), dict(name="one row, the shortest window", T=1, C=3, W=2),
        dict(name="fewer rows than the window", T=2, C=4, W=4), dict(name="a window of three", T=9, C=2, W=3)]
SCAN = [dict(name="two groups, A as its logarithm", T=7, H=4, P=3, G=2, N=5, a_log=True), dict(name="one row", T=1, H=2, P=2, G=1, N=3),
        dict(name="limits of dt", T=6, H=3, P=4, G=1, N=4, dt_min=0.25, dt_max=1.5, a_log=True), dict(name="a group for each head", T=4, H=3, P=1, G=3, N=2)]
DELTA = [dict(name="two heads of v for each of k", T=7, Hk=2, Hv=4, Dk=4, Dv=3, a_log=True, eps=2.0 ** -20),
         dict(name="heads in turn, beta up to two", T=6, Hk=2, Hv=6, Dk=3, Dv=4, tiled=True, eps=2.0 ** -20, beta_scale=2.0),
         dict(name="one row, scale one", T=1, Hk=1, Hv=1, Dk=5, Dv=2, scale=1.0, a_log=True, eps=2.0 ** -20),
         dict(name="a decay for each element", T=5, Hk=2, Hv=2, Dk=4, Dv=4, each=True, a_log=True, eps=2.0 ** -20),
         dict(name="q and k as they are", T=5, Hk=1, Hv=2, Dk=2, Dv=3, small=True)]


def rates(n, a_log, count):
    return n.array([count], -2.0, 1.5) if a_log else n.array([count], -2.0, -0.25)


def conv_case(c, n):
    x, w = n.array([c["T"], c["C"]]), n.array([c["C"], c["W"]], -1.0, 1.0)
    b = n.array([c["C"]]) if c.get("bias") else None
    y, state = conv_state(x, w, b)
    return dict(T=c["T"], C=c["C"], W=c["W"]), dict(x=x, weight=w, bias=b, y=y, state=state)


def scan_case(c, n):
    T, H, P, G, N, log = c["T"], c["H"], c["P"], c["G"], c["N"], bool(c.get("a_log"))
    x, b, g = n.array([T, H, P]), n.array([T, G, N]), n.array([T, G, N])
    dt, a, d, bias = n.array([T, H], -3.0, 1.0), rates(n, log, H), n.array([H]), n.array([H], -1.0, 1.0)
    lo, hi = c.get("dt_min", 0.0), c.get("dt_max", 0.0)
    y, state = ssm_scan(x, b, g, dt, a, d, bias, log, lo, hi)
    xbc = [flat(x[t]) + flat(b[t]) + flat(g[t]) for t in range(T)]
    return dict(T=T, H=H, P=P, G=G, N=N, a_log=int(log), dt_min=lo, dt_max=hi), dict(xbc=xbc, dt=dt, a=a, d=d, dt_bias=bias, y=y, state=state)


def delta_case(c, n):
    T, Hk, Hv, Dk, Dv, log, each = c["T"], c["Hk"], c["Hv"], c["Dk"], c["Dv"], bool(c.get("a_log")), bool(c.get("each"))
    size = 0.5 if c.get("small") else 2.0  # where q and k are taken as they are, longer ones make the state grow
    q, k, v = n.array([T, Hk, Dk], -size, size), n.array([T, Hk, Dk], -size, size), n.array([T, Hv, Dv])
    gate, beta = n.array([T, Hv, Dk] if each else [T, Hv], -3.0, 1.0), n.array([T, Hv], -3.0, 3.0)
    a, bias = rates(n, log, Hv), n.array([Hv, Dk] if each else [Hv], -1.0, 1.0)
    eps, scale, beta_scale, tiled = c.get("eps", 0.0), c.get("scale", 0.0), c.get("beta_scale", 0.0), bool(c.get("tiled"))
    y, state = gated_delta(q, k, v, gate, beta, a, bias, tiled, log, eps, scale, beta_scale)
    qkv = [flat(q[t]) + flat(k[t]) + flat(v[t]) for t in range(T)]
    sizes = dict(T=T, Hk=Hk, Hv=Hv, Dk=Dk, Dv=Dv, each=int(each), tiled=int(tiled), a_log=int(log), eps=eps, scale=scale, beta_scale=beta_scale)
    return sizes, dict(qkv=qkv, gate=gate, beta=beta, a=a, dt_bias=bias, y=y, state=state)


KINDS = [("conv", CONV, conv_case), ("scan", SCAN, scan_case), ("delta", DELTA, delta_case)]


def computed():
    """[(kind, index, name, sizes, arrays)]"""
    return [(kind, i, c["name"], *make(c, Numbers(1000 * len(kind) + i))) for kind, cases, make in KINDS for i, c in enumerate(cases)]


def as_f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def written(x):
    text = "%.9g" % as_f32(x)
    return (text if re.search(r"[.en]", text) else text + ".0") + "f"


def array_name(kind, i, name):
    return "state_%s_%d_%s" % (kind, i, name)


HEAD = """/* state_vectors.h -- what CONV_STATE, SSM_SCAN and GATED_DELTA give for a sequence that begins
 * with a state of zeros. Made by `state_oracle.py --header`, in f64 by the formulas of docs/ops.md;
 * the test `state oracle` computes it anew. Sizes by the letters of docs/ops.md; arrays are dense
 * in the order of the operands' shapes. state: behind the last row, [W - 1, C] the oldest first,
 * [H, P, N], [Hv, Dk, Dv]. */
#ifndef MN_STATE_VECTORS_H
#define MN_STATE_VECTORS_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;
    int64_t T, C, W;
    const float *x, *weight, *bias, *y, *state; /* bias: NULL = none */
} state_conv_case;
typedef struct {
    const char *name;
    int64_t T, H, P, G, N;
    uint64_t a_log;
    double dt_min, dt_max;
    const float *xbc, *dt, *a, *d, *dt_bias, *y, *state;
} state_scan_case;
/* each: a gate for each element of k; tiled: attribute HEADS */
typedef struct {
    const char *name;
    int64_t T, Hk, Hv, Dk, Dv, each;
    uint64_t tiled, a_log;
    double eps, scale, beta_scale;
    const float *qkv, *gate, *beta, *a, *dt_bias, *y, *state;
} state_delta_case;

/* clang-format off */
"""


def wrapped(fields, indent=4):
    """Lines of at most 100 columns, a comma behind each field."""
    lines = [" " * indent]
    for field in fields:
        if len(lines[-1]) + len(field) + 1 > 100:
            lines.append(" " * indent)
        lines[-1] += field + ", "
    return "".join(line.rstrip() + "\n" for line in lines)


def print_header(out):
    cases = computed()
    out.write(HEAD)
    for kind, i, _, _, arrays in cases:
        for name, values in arrays.items():
            if values is None:
                continue
            out.write("static const float %s[] = {\n%s};\n" % (array_name(kind, i, name), wrapped([written(v) for v in flat(values)])))
    for kind, _, _ in KINDS:
        out.write("static const state_%s_case state_%s_cases[] = {\n" % (kind, kind))
        for of, i, name, sizes, arrays in cases:
            if of == kind:
                fields = ["\"%s\"" % name] + [repr(v) for v in sizes.values()] + [array_name(kind, i, a) if v is not None else "NULL" for a, v in arrays.items()]
                out.write("    {\n%s    },\n" % wrapped(fields, 8))
        out.write("};\n")
    out.write("/* clang-format on */\n#endif\n")


def check(path):
    """Mathematical libraries round differently: numbers within 1e-6 of the largest of their array."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    found = {name: [float(v.rstrip("f")) for v in re.findall(r"[-+0-9.e]+f", body)] for name, body in re.findall(r"static const float (\w+)\[\] = \{(.*?)\};", text, re.S)}
    wrong = []
    for kind, i, _, _, arrays in computed():
        for name, values in arrays.items():
            full = array_name(kind, i, name)
            if values is None:
                continue
            want, have = flat(values), found.pop(full, [])
            if len(want) != len(have) or max(abs(w - h) for w, h in zip(want, have)) > 1e-6 * max(map(abs, want)):
                wrong.append(full)
    wrong += ["%s is nobody's" % name for name in found]
    sys.exit("%s: %s: make it anew with --header" % (path, ", ".join(wrong)) if wrong else 0)


# ---- beside Transformers -------------------------------------------------------------------------

def transformers():
    import torch
    import torch.nn.functional as F
    torch.float32 = torch.float = torch.float64  # what they compute in f32 whatever their inputs are
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    from transformers.models.granitemoehybrid import modeling_granitemoehybrid as mamba
    from transformers.models.qwen3_next import modeling_qwen3_next as delta
    worst = {}

    def beside(what, ours, theirs):
        a, b = torch.tensor(ours, dtype=torch.float64), theirs.double()
        worst[what] = max(worst.get(what, 0.0), float((a - b.reshape(a.shape)).norm() / b.norm()))

    def draw(n, shape, lo=-2.0, hi=2.0):
        values = n.array(list(shape), lo, hi)
        return values, torch.tensor(values, dtype=torch.float64)

    for seed, (T, cut) in enumerate([(1, 0), (7, 3), (64, 63), (65, 64), (100, 31)]):
        n = Numbers(77 + seed)
        x, tx = draw(n, (T, 5))
        w, tw = draw(n, (5, 4), -1.0, 1.0)
        b, tb = draw(n, (5,))
        y, state = conv_state(x, w, b)
        beside("convolution", y, delta.causal_conv1d_fn(tx.T[None], tw, tb)[0].T)
        if cut:
            first, kept = conv_state(x[:cut], w, b)
            beside("convolution in two steps", first + conv_state(x[cut:], w, b, kept)[0], torch.tensor(y))
            one = torch.tensor(conv_state(x[:-1], w, b)[1]).T[None].contiguous()
            beside("convolution, one row", y[-1], delta.causal_conv1d_update(tx[-1:].T[None], one, tw, tb)[0, :, 0])
            beside("state of a convolution", state, one[0].T)

        H, P, G, N = 4, 3, 2, 5
        (x, tx), (b, tb), (c, tc) = draw(n, (T, H, P)), draw(n, (T, G, N)), draw(n, (T, G, N))
        (dt, tdt), (a, ta), (d, td), (bias, tbias) = draw(n, (T, H), -3.0, 1.0), draw(n, (H,), -2.0, 1.0), draw(n, (H,)), draw(n, (H,), -1.0, 1.0)
        for limits in ((0.0, 0.0), (0.25, 1.5)):
            y, state = ssm_scan(x, b, c, dt, a, d, bias, True, *limits)
            for chunk in (8, 64):
                ty, ts = mamba.mamba2_chunk_scan(tx[None], tdt[None], -ta.exp(), tb[None], tc[None], chunk, D=td, dt_bias=tbias, dt_softplus=True,
                                                 dt_limit=(limits[0], limits[1] or float("inf")), return_final_states=True)
                beside("scan in chunks of %d" % chunk, y, ty[0])
                beside("state of a scan", state, ts[0])
        if cut:
            y, state = ssm_scan(x, b, c, dt, a, d, bias, True)
            first, kept = ssm_scan(x[:cut], b[:cut], c[:cut], dt[:cut], a, d, bias, True)
            beside("scan in two steps", first + ssm_scan(x[cut:], b[cut:], c[cut:], dt[cut:], a, d, bias, True, state=kept)[0], torch.tensor(y))
            s = torch.tensor(ssm_scan(x[:-1], b[:-1], c[:-1], dt[:-1], a, d, bias, True)[1])[None].contiguous()
            wide = (-ta.exp())[:, None, None].expand(H, P, N)
            ty = mamba.mamba2_selective_state_update(s, tx[-1:], tdt[-1:, :, None].expand(1, H, P), wide, tb[-1:], tc[-1:], td[:, None].expand(H, P),
                                                     dt_bias=tbias[:, None].expand(H, P), dt_softplus=True)
            beside("scan, one row", y[-1], ty[0])
            beside("state of a scan, one row", state, s[0])

        Hk, Hv, Dk, Dv = 2, 6, 4, 3
        (q, tq), (k, tk), (v, tv) = draw(n, (T, Hk, Dk)), draw(n, (T, Hk, Dk)), draw(n, (T, Hv, Dv))
        (gate, tg), (beta, tbeta), (a, ta), (bias, tbias) = draw(n, (T, Hv), -3.0, 1.0), draw(n, (T, Hv), -3.0, 3.0), draw(n, (Hv,), -2.0, 1.0), draw(n, (Hv,), -1.0, 1.0)
        for twice in (0.0, 2.0):
            y, state = gated_delta(q, k, v, gate, beta, a, bias, a_log=True, eps=1e-6, beta_scale=twice)
            given = dict(g=(-ta.exp() * F.softplus(tg + tbias))[None], beta=((twice or 1.0) * tbeta.sigmoid())[None], output_final_state=True, use_qk_l2norm_in_kernel=True)
            for how, f in (("in chunks of 64", delta.torch_chunk_gated_delta_rule), ("row by row", delta.torch_recurrent_gated_delta_rule)):
                ty, ts = f(tq[None], tk[None], tv[None], **given)
                beside("delta rule " + how, y, ty[0])
                beside("state of the delta rule " + how, state, ts[0])
        if cut:
            y = gated_delta(q, k, v, gate, beta, a, bias, a_log=True, eps=1e-6)[0]
            first, kept = gated_delta(q[:cut], k[:cut], v[:cut], gate[:cut], beta[:cut], a, bias, a_log=True, eps=1e-6)
            rest = gated_delta(q[cut:], k[cut:], v[cut:], gate[cut:], beta[cut:], a, bias, a_log=True, eps=1e-6, state=kept)[0]
            beside("delta rule in two steps", first + rest, torch.tensor(y))
    for what, error in worst.items():
        print("%-40s %.1e" % (what, error))
    sys.exit("above 1e-10" if max(worst.values()) > 1e-10 else 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--header"]:
        print_header(sys.stdout)
    elif sys.argv[1:2] == ["--check"] and len(sys.argv) == 3:
        check(sys.argv[2])
    elif sys.argv[1:] == ["--transformers"]:
        transformers()
    else:
        sys.exit(__doc__)
