/* plugin.h -- the Minerva plugin ABI, version 0.10. C11 and C++17; needs no other Minerva header.
 *
 * A plugin is one shared object that exports one symbol, minerva_plugin_entry. It offers a backend
 * (devices that execute graphs), a loader (a parser of one model format), or both, as function
 * tables that the host queries by name.
 *
 * Read in this order: the rules, host and plugin, then either "backend" (facts, graph, negotiation,
 * memory, weights, programs) or "loader" at the end. docs/ops.md has the contract of each
 * operation, docs/plugin-howto.md one generation call by call, docs/abi-history.md the changes.
 *
 * R1  A table or struct that is passed by its own pointer begins with `uint32_t size`: sizeof() as
 *     compiled by the side that owns its memory. Array elements have no size and may grow at their
 *     end: arrays are passed with a stride. The rows of SLOTS and PARAMS in device memory are such
 *     arrays: their stride is 4 * dim[1] of the tensor. A stride is a multiple of the element's
 *     alignment, and covers at least what this minor's element has. Structs embedded in others
 *     (mn_str, mn_dtype) never grow.
 * R2  Structs grow at their end only, never in padding; pads are explicit; sizes and offsets are
 *     frozen by a test. Pads, and `flags` for which this header has no constants, are 0.
 * R3  A reader uses a field if size covers it and, for a function, if it is not NULL: MN_HAS.
 *     Meanings never change.
 * R4  The caller allocates an output struct and sets size to its capacity. The callee fills
 *     min(capacity, its own size) and sets size.
 * R5  Fixed-width integers and IEEE floats only, no enum, bool, long, size_t or bit-field.
 *     A kind, flag, role, class or type that this side does not know is MN_UNSUPPORTED, never
 *     MN_INVALID, so that new ones can be added later.
 * R6  Memory is freed by the side that allocated it. No exception, longjmp or signal handler leaves
 *     its side. Strings are UTF-8 with a length; a string in a fixed char array ends with NUL. No
 *     handle is NULL, except events and mn_compile.weights. A pointer whose length or number is 0
 *     may be NULL. A handle of one plugin is never given to another.
 *     Memory that is passed as const, and everything that it points to as const, is read-only: a
 *     write there may end the process. It is valid during the call, unless documented otherwise.
 * R7  A plugin uses no symbol of the host: all functions that it may call are in mn_host.
 * R8  Threads: plugin, device and program functions are called from any thread; a queue, a context
 *     and a weight set from one thread at a time; a buffer and an event from any one thread at a
 *     time; a sealed set is read by programs on any threads. Lifetimes: children are freed before
 *     parents; the receiver of an event frees it. The host frees or rebinds a buffer, context,
 *     weight set or program only when the events of the work that uses it are complete, or after
 *     abort, or when the device is lost.
 * R9  Below 1.0, host and plugin must have the same minor. From 1.0 (the freeze) on, different
 *     minors work together, whichever side is newer, if the majors are equal, host.abi >= the
 *     plugin's MN_ABI_OLDEST, and host.abi_min <= the plugin's MN_ABI_VERSION.
 * R10 A call that may one day take more gets its parameters as one struct with `size`:
 *     mn_alloc_params, mn_queue_params, mn_open_params, mn_context_params, mn_compile, mn_step. It
 *     is never NULL; a field behind `size` is 0, and 0 is the behaviour before the field existed.
 *     A field, flag or value that the plugin does not know and that is not 0 is MN_UNSUPPORTED,
 *     unless the field is documented as a wish.
 * R11 A plugin shares its process with the host and with other plugins. A call leaves signal
 *     handlers and masks, the floating-point state, the locale, the working folder and the
 *     environment unchanged. A child that a plugin forks calls nothing but exec or _exit. Hosts and
 *     plugins are 64-bit and little-endian.
 * R12 Vendors own the ids of operations, types and kinds of planes with bit 31 set, the flags from
 *     bit 48 of a 64-bit field on, the codes from 0x800000 on within a class of status, and
 *     interfaces under a domain of theirs (com.vendor.thing/1). mn.x.NAME/n is a draft of ours,
 *     which may change or go without notice. All other ids are ours. */
#ifndef MINERVA_PLUGIN_H
#define MINERVA_PLUGIN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* A version is major << 16 | minor. These are literals, usable in #if and by other languages. */
#define MN_ABI_VERSION 0x0000000a
/* The oldest version that this version works with: below 1.0 this version itself, from 1.0 on 1.0
 * (R9). */
#define MN_ABI_OLDEST 0x0000000a
#define MN_ABI(major, minor) ((uint32_t)(major) << 16 | (uint32_t)(minor))
/* The calling convention, at every function pointer: the platform's own for C. Empty on all
 * platforms of today. */
#define MN_CALL
#define MN_VENDOR 0x80000000u /* the bit of ids that vendors own (R12) */
/* Whether struct *p of type T, as its owner compiled it, has a non-zero field f. */
#define MN_HAS(T, p, f) ((p)->size >= offsetof(T, f) + sizeof((p)->f) && (p)->f)
#define MN_MAX_DIM 6 /* cannot grow later */

/* The visibility of the entry; build the object with hidden visibility. */
#if defined(__GNUC__)
#define MN_EXPORT __attribute__((visibility("default")))
#else
#define MN_EXPORT
#endif

/* Bytes with a length; not NUL-terminated. Lifetime: as documented at the function that returns
 * it. */
typedef struct {
    const char *ptr;
    uint64_t len;
} mn_str;

/* ---- status and error ---------------------------------------------------------------------------
 * 0 = ok. The class (high byte) states what the caller is to do; the low bytes are the case
 * within the class. A class that the caller does not know counts as MN_CLASS_CALLER. */
typedef int32_t mn_status;
#define MN_STATUS(klass, code) ((mn_status)((klass) << 24 | (code))) /* own codes: R12 */
#define MN_STATUS_CLASS(status) ((uint32_t)(status) >> 24)
enum {
    MN_CLASS_REFUSE = 1,    /* place the work elsewhere */
    MN_CLASS_SMALLER = 2,   /* retry with less: out of memory */
    MN_CLASS_TRANSIENT = 3, /* retry unchanged */
    /* the device is lost until device_open succeeds again: quarantine it; free and close functions
     * still work. The host may try device_open later, with growing delays */
    MN_CLASS_LOST = 4,
    MN_CLASS_CALLER = 5, /* a bug of the caller */
    MN_CLASS_CANCELLED = 6,
    MN_CLASS_INPUT = 7 /* an error in the user's file, text or setting: report it */
};
enum {
    MN_OK = 0,
    MN_UNSUPPORTED = 0x01000001, /* op, type, architecture or extension unknown to this side */
    MN_END = 0x01000002,         /* past the last element of a list */
    MN_NO_DEVICE = 0x01000003,   /* no usable device */
    MN_OUT_OF_MEMORY = 0x02000001,
    MN_TIMEOUT = 0x03000001,
    MN_DEVICE_LOST = 0x04000001,
    MN_INVALID = 0x05000001, /* an argument breaks the contract */
    MN_CANCELLED = 0x06000001,
    MN_TOO_LATE = 0x06000002,  /* a step that had not begun at its deadline was dropped */
    MN_BAD_FILE = 0x07000001,  /* truncated, corrupt or contradictory */
    MN_BAD_INPUT = 0x07000002, /* text, ids or settings */
    MN_IO_ERROR = 0x07000003
};

/* Filled when the status is not MN_OK. Every mn_error * parameter may be NULL. */
typedef struct {
    uint32_t size;
    mn_status status;
    int64_t vendor_code;
    uint32_t node; /* the graph node with the error, else ~0u */
    uint32_t part; /* the text of the caller with the error, if the function documents it; else 0 */
    char msg[488];
} mn_error;

typedef struct mn_device mn_device; /* all opaque, owned by the plugin */
typedef struct mn_buffer mn_buffer;
typedef struct mn_queue mn_queue;
typedef struct mn_event mn_event;
typedef struct mn_weights mn_weights;
typedef struct mn_program mn_program;
typedef struct mn_context mn_context;
typedef struct mn_parsed mn_parsed;

/* ---- host and plugin ----------------------------------------------------------------------------
 */
#define MN_LOG_ERROR 0
#define MN_LOG_WARN 1
#define MN_LOG_INFO 2
#define MN_LOG_DEBUG 3

/* Work for mn_host.team: phases one after the other, each of independent chunks. Threads take
 * chunks from a counter; a phase ends when its chunks are complete, not when all threads have
 * arrived: a thread may join late or never. Writes of chunks of a phase are visible to all chunks
 * of later phases. */
typedef struct {
    uint32_t size, n_phases;
    void *arg;
    /* Number of chunks of a phase, 0 to 2^24 - 1; called once per phase, after the phase before. */
    uint32_t(MN_CALL *chunks)(void *arg, uint32_t phase);
    /* thread: index of the calling thread, below workers(), to choose its scratch memory */
    void(MN_CALL *run)(void *arg, uint32_t phase, uint32_t chunk, uint32_t thread);
} mn_team;

/* The functions of the host. Lives longer than the plugin. All may be called from any thread.
 * Minerva has all of them. If a function is missing (R3), the plugin works without it, or its entry
 * returns an error with a message. */
typedef struct {
    /* these 16 bytes never change, for any major; abi_min: the oldest plugin that is accepted */
    uint32_t size, abi, abi_min, pad;
    void *self;
    void(MN_CALL *log)(void *self, int32_t level, mn_str msg);
    /* NULL = out of memory; align: a power of 2. The memory is not zeroed. */
    void *(MN_CALL *alloc)(void *self, uint64_t bytes, uint64_t align);
    void(MN_CALL *release)(void *self, void *ptr); /* ptr may be NULL */
    /* Runs fn(arg, i, n) for i < n, 1 <= n <= workers() (else MN_INVALID), all n at the same
     * time: barriers among them are allowed. The only CPU thread pool of the process: a plugin
     * starts no compute threads, and uses a BLAS with one thread. One caller at a time (others
     * wait); not from inside fn or a team. */
    mn_status(MN_CALL *parallel)(void *self, uint32_t n,
                                 void(MN_CALL *fn)(void *arg, uint32_t i, uint32_t n), void *arg);
    uint32_t(MN_CALL *workers)(void *self);
    /* done: 0 to 1, negative: unknown; non-zero = stop: return MN_CANCELLED */
    int32_t(MN_CALL *progress)(void *self, float done, mn_str what);
    uint64_t(MN_CALL *now_ns)(void *self); /* monotonic */
    /* 1 = set; *value is valid until shutdown. Section [plugin.ID] of minerva.ini; no getenv in
     * plugins */
    int32_t(MN_CALL *option)(void *self, const char *key, mn_str *value);
    /* later services: MN_CACHE_ID; NULL = unknown */
    const void *(MN_CALL *query)(void *self, const char *interface_id);
    /* The same pool with chunks instead of tasks: does not wait for a thread that the system
     * does not schedule. Returns when the last phase is complete. Callers as in parallel. */
    mn_status(MN_CALL *team)(void *self, const mn_team *team);
} mn_host;

#define MN_PLUGIN_UNLOADABLE 1u /* may be dlclosed after shutdown */

/* "mn.cache/1", a service of the host (mn_host.query): data that a plugin can make again at some
 * cost, such as compiled kernels, kept between processes in files of the user. Any thread; several
 * processes may use one entry. self: mn_host.self. */
typedef struct {
    uint32_t size, flags;
    /* name: name of the entry, among the entries of this plugin; stamp: what it was made from
     * (versions, digests, options). *data: the last bytes written under this name, if their stamp
     * equals `stamp`; the caller releases them by mn_host.release. MN_END: there is no entry, its
     * stamp differs, or it is damaged: make the data again */
    mn_status(MN_CALL *read)(void *self, mn_str name, mn_str stamp, void **data, uint64_t *bytes);
    /* Replaces the whole entry. More than `most` bytes: MN_INVALID. After an error the plugin goes
     * on without the cache. */
    mn_status(MN_CALL *write)(void *self, mn_str name, mn_str stamp, const void *data,
                              uint64_t bytes);
    uint64_t most; /* maximum bytes of an entry */
    /* As read, without a copy: *data is read-only, aligned to 64 bytes, and valid until unmap gets
     * the same pointer. A write of the entry meanwhile does not change *data. */
    mn_status(MN_CALL *map)(void *self, mn_str name, mn_str stamp, const void **data,
                            uint64_t *bytes);
    void(MN_CALL *unmap)(void *self, const void *data);
} mn_cache;

/* What the plugin is. Lives until shutdown. */
typedef struct {
    uint32_t size, abi; /* abi: the MN_ABI_VERSION it was compiled against */
    /* first argument of all functions below: each host of a process has its own self */
    void *self;
    /* id: [a-z0-9_]+, the device name for users; build_id: differs between builds that differ in
     * results or speed. Empty: the build id of the linker (.note.gnu.build-id) is used */
    mn_str id, vendor, version, build_id;
    uint64_t flags;
    /* "mn.backend/1", "mn.loader/1", "com.vendor.thing/1"; NULL = no */
    const void *(MN_CALL *query)(void *self, const char *interface_id);
    void(MN_CALL *shutdown)(
        void *self); /* the last call; all objects of the plugin are freed before */
} mn_plugin;

#define MN_BACKEND_ID "mn.backend/1"
#define MN_LOADER_ID "mn.loader/1"
#define MN_PROFILE_ID "mn.profile/1"
#define MN_GROUP_ID "mn.group/1"
#define MN_CACHE_ID "mn.cache/1"
#define MN_TYPES_ID "mn.types/1"
#define MN_KV_ID "mn.kv/1"
#define MN_EXPERTS_ID "mn.x.experts/1"

/* The only exported symbol, named minerva_plugin_entry. Calls no driver; returns within 50 ms.
 * NULL = error filled. */
typedef const mn_plugin *(MN_CALL *mn_entry_fn)(const mn_host *host, mn_error *err);
#define MN_ENTRY_NAME "minerva_plugin_entry"
MN_EXPORT const mn_plugin *minerva_plugin_entry(const mn_host *host, mn_error *err);

/* An ELF note that the host reads from the file before it opens it (on other platforms the same
 * bytes; the PE section ".minerva" and the Mach-O section "__MINERVA,__note" are reserved for
 * them). A plugin has it once, at file scope:
 * MN_PLUGIN_NOTE("vendor", MN_KIND_BACKEND, "avx2 fma");
 * isa: instruction sets that the whole file needs, by the compiler's names for
 * __builtin_cpu_supports (x86) or of hwcaps (Arm), separated by spaces; "" for a file that runs on
 * every processor of its architecture or selects code at run time. */
#define MN_KIND_BACKEND 1u
#define MN_KIND_LOADER 2u
typedef struct {
    uint32_t n_name, n_desc, type;
    char name[8];
    uint32_t size, abi, abi_oldest, kinds; /* size: from itself on */
    char id[64], isa[64];
} mn_note;
/* clang-format off */
#define MN_PLUGIN_NOTE(id, kinds, isa)                                                             \
    static const mn_note minerva_note                                                              \
        __attribute__((section(".note.minerva"), used, aligned(4))) =                              \
        {8, sizeof(mn_note) - 20, 1, "Minerva", sizeof(mn_note) - 20, MN_ABI_VERSION,              \
         MN_ABI_OLDEST, kinds, id, isa}

/* ---- data types ---------------------------------------------------------------------------------
 * A type is described by elements per block, bytes per block, planes: X(name, id, elements, bytes,
 * planes). Ids are permanent. Blocks run along the last dimension, whose length is a multiple of
 * the block. Block layouts are those of the GGUF specification: Q8_0 = {f16 d; i8 q[32]}, x = d*q;
 * Q4_0 = {f16 d; u8 q[16]}, element i < 16 is the low nibble of q[i], element 16+i the high one, x
 * = d*(nibble-8). With several planes, bytes is that of a block of the DATA plane, and the others
 * hold one value per block:
 *   I4           element 2i is the low nibble of byte i, 2i+1 the high one; two's complement
 *   MXFP4_SPLIT  DATA: E2M1 nibbles in the order of I4; SCALE: U8, E8M0 (gpt-oss, MLX)
 *   NVFP4        DATA: E2M1 nibbles in the order of I4; SCALE: F8_E4M3; TENSOR_SCALE: F32, one
 *                value for the part; x = tensor_scale * scale * e2m1
 *   NVFP4_64     as GGUF has it: {F8_E4M3 without sign d[4]; u8 q[32]}, a d for each 16 elements,
 *                whose first 8 are the low nibbles of 8 bytes; TENSOR_SCALE optional
 *   NF4_64       DATA: codes of 4 bits, element 2i is the high nibble of byte i; SCALE: F32; x =
 *                scale * value of the code by QLoRA's table (bitsandbytes)
 *   FP4_64       as NF4_64 with bitsandbytes' table fp4: bit 3 is the sign
 *   PICKb_32     b bits, DATA as of MLXb_g; SCALE, BIAS: F32, n values a row, n the plane's own;
 *                PICK: I32, for each column which of them; x = scale[pick] * q + bias[pick]
 *   MLXb_g       b bits, groups of g: DATA: a little-endian bit stream, element i in bits
 *                [i*b, (i+1)*b); SCALE, BIAS: F16, BF16 or F32; x = scale * q + bias
 *   F8_E4M3      SCALE optional: F32, BF16 or F16, one per row [N], of experts [E, N]; stride 0 =
 *                one for all; x = scale * f8
 *   F8_E4M3_32   SCALE: U8, E8M0 (MXFP8 of OCP, MLX)
 *   F8_E4M3_128  SCALE: one per 128 columns, [1, K/128] for each part: a part is (up to) 128 rows.
 *                Of experts [E, N, K] a part is whole experts, SCALE [E, ceil(N/128), K/128]: rows
 *                128i to 128i + 127 of an expert share row i
 * The planes of all parts have the types and, but for dims of 1, the strides of the first
 * part's. */
#define MN_DTYPES(X)                                                                               \
    X(F32, 1, 1, 4, 1) X(F16, 2, 1, 2, 1) X(BF16, 3, 1, 2, 1) X(F64, 4, 1, 8, 1)                   \
    X(I8, 5, 1, 1, 1) X(I16, 6, 1, 2, 1) X(I32, 7, 1, 4, 1) X(I64, 8, 1, 8, 1) X(U8, 9, 1, 1, 1)   \
    X(F8_E4M3, 10, 1, 1, 1) X(F8_E5M2, 11, 1, 1, 1) X(F8_E4M3_128, 12, 128, 128, 2)                \
    X(U16, 14, 1, 2, 1) X(I4, 15, 2, 1, 1) X(F8_E4M3_32, 16, 32, 32, 2)                            \
    X(Q4_0, 20, 32, 18, 1) X(Q4_1, 21, 32, 20, 1) X(Q5_0, 22, 32, 22, 1) X(Q5_1, 23, 32, 24, 1)    \
    X(Q8_0, 24, 32, 34, 1) X(Q8_1, 25, 32, 36, 1)                                                  \
    X(Q2_K, 30, 256, 84, 1) X(Q3_K, 31, 256, 110, 1) X(Q4_K, 32, 256, 144, 1)                      \
    X(Q5_K, 33, 256, 176, 1) X(Q6_K, 34, 256, 210, 1) X(Q8_K, 35, 256, 292, 1)                     \
    X(IQ4_NL, 40, 32, 18, 1) X(IQ4_XS, 41, 256, 136, 1)                                            \
    X(MXFP4, 42, 32, 17, 1) X(MXFP4_SPLIT, 43, 32, 16, 2) X(NVFP4, 44, 16, 8, 3)                   \
    X(NF4_64, 45, 64, 32, 2) X(NVFP4_64, 46, 64, 36, 1) X(FP4_64, 47, 64, 32, 2)                   \
    X(MLX2_32, 50, 32, 8, 3) X(MLX2_64, 51, 64, 16, 3) X(MLX2_128, 52, 128, 32, 3)                 \
    X(MLX3_32, 53, 32, 12, 3) X(MLX3_64, 54, 64, 24, 3) X(MLX3_128, 55, 128, 48, 3)                \
    X(MLX4_32, 56, 32, 16, 3) X(MLX4_64, 57, 64, 32, 3) X(MLX4_128, 58, 128, 64, 3)                \
    X(MLX6_32, 59, 32, 24, 3) X(MLX6_64, 60, 64, 48, 3) X(MLX6_128, 61, 128, 96, 3)                \
    X(MLX8_32, 62, 32, 32, 3) X(MLX8_64, 63, 64, 64, 3) X(MLX8_128, 64, 128, 128, 3)               \
    X(MLX5_32, 65, 32, 20, 3) X(MLX5_64, 66, 64, 40, 3) X(MLX5_128, 67, 128, 80, 3)                \
    X(IQ1_S, 70, 256, 50, 1) X(IQ1_M, 71, 256, 56, 1) X(IQ2_XXS, 72, 256, 66, 1)                   \
    X(IQ2_XS, 73, 256, 74, 1) X(IQ2_S, 74, 256, 82, 1) X(IQ3_XXS, 75, 256, 98, 1)                  \
    X(IQ3_S, 76, 256, 110, 1) X(TQ1_0, 77, 256, 54, 1) X(TQ2_0, 78, 256, 66, 1)         \
    X(Q1_0, 79, 128, 18, 1) X(Q2_0, 80, 64, 18, 1)                                                 \
    X(PICK4_32, 81, 32, 16, 4) X(PICK8_32, 82, 32, 32, 4)
/* clang-format on */
#define MN_DTYPE_CONST_(name, id, elems, bytes, planes) MN_##name = id,
/* constants only; the enum type is not used in the ABI */
enum { MN_DTYPES(MN_DTYPE_CONST_) MN_DTYPE_NONE = 0 };
typedef struct {
    uint32_t id, block_elems, block_bytes, n_planes;
} mn_dtype;

/* ==== backend ====================================================================================
 * ---- facts of a device: the plugin states, the host measures and scores --------------------- */
#define MN_DEVICE_CPU 1u /* mn_device_info.kind */
#define MN_DEVICE_GPU 2u
#define MN_DEVICE_NPU 3u
#define MN_DEVICE_OTHER 4u
#define MN_MAX_DEVICES 1024u /* of one plugin: the host uses no more */

#define MN_DEVICE_UNIFIED 1u /* mn_device_info.flags: map() works on device buffers */
#define MN_DEVICE_ASYNC 2u   /* execute returns before the work is done: the host runs ahead */
#define MN_DEVICE_WRAPS 4u   /* wrap() accepts host memory without a copy */
/* exact rather than fast: chosen only by name or if no other device can be used */
#define MN_DEVICE_ORACLE 32u
/* weights_put of one set may be called from several threads at once, each with its own queue */
#define MN_DEVICE_PARALLEL_PUT 64u

typedef struct {
    uint32_t size, kind;
    /* uid: PCI address or UUID; devices with the same mem_pool share their memory; the host's
     * memory is "host" */
    char name[64], uid[64], driver[64], mem_pool[64];
    /* bytes; mem_free 0 = only device_memory reports it; align: of binding offsets and wrapped
     * memory, a power of 2, at least 8 */
    uint64_t mem_total, mem_free, max_alloc, align, flags;
    double mem_gbps, fp16_tflops, int8_tops, launch_us, h2d_gbps; /* claims; 0 = unknown */
} mn_device_info;

/* ---- the graph: immutable, the host's, valid while a program, weight set or context of it lives -
 */

/* SHAPE symbols are the amount of computation (n_tokens, n_outputs, n_seqs): the host rounds them
 * up to buckets (mn_estimate.row_grain); padded rows have no effect. BOUND symbols are a maximum
 * only (KV length): tensors are laid out by the maximum; the actual values are in device tensors
 * and change without a new capture. At execute the value of a BOUND symbol is a bound for this
 * step: its longest sequence, rounded up. A plugin may divide its work by this value. FACT
 * symbols are not sizes. A derived symbol is base * mul + add; base is a lower index. Arrays of
 * symbol values are [n_symbols]; entries of derived symbols are ignored. A dim of a BOUND symbol
 * always counts its maximum; a SHAPE value may be 0. Buffers have the size of the bucket; rows
 * behind a SHAPE value are not written.
 *
 * Combinations that the host uses (T n_tokens, O n_outputs, Q n_seqs): n_outputs is 0, or the value
 * of n_seqs, or the value of n_tokens, each limited to its maximum. In steps of few rows n_seqs is
 * n_tokens, too; entries without rows are padding. The FACT seq_rows is 1 when each sequence of the
 * step has one row (then n_seqs = n_tokens), else its maximum. */
#define MN_SYMBOL_SHAPE 1u
#define MN_SYMBOL_BOUND 2u
#define MN_SYMBOL_FACT 3u
typedef struct {
    char name[24];
    int64_t min, max, typical;
    uint32_t kind;
    int32_t base; /* symbol index, -1 = not derived */
    int64_t mul, add;
} mn_symbol;

#define MN_ROLE_INPUT 1u    /* bound by the host, written before the step */
#define MN_ROLE_OUTPUT 2u   /* bound by the host if needed; not bound = need not be computed */
#define MN_ROLE_WEIGHT 3u   /* imported by weights_put */
#define MN_ROLE_STATE 4u    /* bound by the host, keeps its contents across steps */
#define MN_ROLE_INTERIOR 5u /* the plugin's; it may store another dtype */
typedef struct {
    mn_dtype dtype;
    int64_t dim[MN_MAX_DIM]; /* dim[0] outermost; < 0: symbol ~dim */
    uint32_t n_dim, role;
    /* The viewed tensor, which is no view and has the same dtype; -1 = this tensor is no view.
     * offset and stride below are in elements and not negative. The host binds (or puts as a
     * weight) the viewed tensor, never the view. */
    int32_t alias_of, pad;
    int64_t offset, stride[MN_MAX_DIM];
    mn_str name;
} mn_tensor;

/* Operands by position: operands[in_off .. +n_in), then out_off; -1 = absent. A REPEATED group
 * (LINEAR's weight and bias) is present n_out times; operands that are added to such an op later
 * follow the groups. Attributes by position: attrs[attr_off .. +n_attr): integers, doubles (bits)
 * or numbers of mn_graph.blobs, by the op's table; a missing attribute is 0, and 0 is the behaviour
 * before the attribute existed. A node with an unknown operand, or with an unknown attribute that
 * is not 0, gets the verdict no. */
typedef struct {
    uint32_t op, contract, in_off, n_in, out_off, n_out, attr_off, n_attr;
    int32_t layer;
    uint32_t pad;
} mn_node;
typedef struct {
    uint32_t size, n_nodes, n_tensors, n_symbols;
    uint32_t node_stride, tensor_stride, symbol_stride, n_operands;
    const mn_node *nodes; /* in execution order; docs/ops.md states the order of a layer's nodes */
    const mn_tensor *tensors;
    const mn_symbol *symbols;
    const int32_t *operands;
    const uint64_t *attrs;
    uint64_t n_attrs;
    uint64_t digest[4]; /* of ops, shapes and attributes; not of weights */
    /* The tensor of step facts, I32 [MN_STEP_WORDS], role INPUT; -1 = none. The host binds it to
     * every context of the graph, although no node reads it; a plugin may ignore it. Words by
     * MN_STEP_*; other words are 0. */
    int32_t step;
    /* Attributes whose kind is BLOB in docs/ops.md, or in the vendor's own table: bytes. The
     * attribute is the index here + 1; 0: none. The digest covers the bytes */
    uint32_t n_blobs;
    const mn_str *blobs;
} mn_graph;
#define MN_STEP_WORDS 16
enum {
    MN_STEP_ROWS = 0,    /* live rows: all rows behind them are padding */
    MN_STEP_OUTPUTS = 1, /* live outputs */
    MN_STEP_SEQS = 2     /* live entries of SEQS */
};

/* Op ids, permanent. Operands, attributes and formulas: docs/ops.md, generated from
 * runtime/graph/ops.def. */
#define MN_OP_EMBED 1u
#define MN_OP_RMS_NORM 2u
#define MN_OP_LAYER_NORM 3u
#define MN_OP_LINEAR 4u
#define MN_OP_ROPE 5u
#define MN_OP_KV_STORE 6u
#define MN_OP_ATTENTION 7u
#define MN_OP_ACT 8u
#define MN_OP_GLU 9u
#define MN_OP_ADD 10u
#define MN_OP_MUL 11u
#define MN_OP_SCALE 12u
#define MN_OP_SOFTCAP 13u
#define MN_OP_GATHER_ROWS 14u
#define MN_OP_SAMPLE 15u
#define MN_OP_MOE_ROUTE 16u
#define MN_OP_MOE_LINEAR 17u
#define MN_OP_MOE_COMBINE 18u
#define MN_OP_CONV_STATE 19u
#define MN_OP_SSM_SCAN 20u
#define MN_OP_GATED_DELTA 21u
#define MN_OP_LOOKUP 22u
#define MN_OP_LORA 23u

/* MN_OPS: X(name, id) for each op. Then positions of operands (MN_op_NAME), outputs
 * (MN_op_OUT_NAME) and attributes (MN_op_ATTR_NAME). LINEAR repeats WEIGHT and BIAS: weight i is
 * operand 1 + 2*i, its output is i. OPS-BEGIN */
/* clang-format off */
#define MN_OPS(X)                                                                                  \
    X(EMBED, 1) X(RMS_NORM, 2) X(LAYER_NORM, 3) X(LINEAR, 4) X(ROPE, 5) X(KV_STORE, 6)             \
    X(ATTENTION, 7) X(ACT, 8) X(GLU, 9) X(ADD, 10) X(MUL, 11) X(SCALE, 12) X(SOFTCAP, 13)          \
    X(GATHER_ROWS, 14) X(SAMPLE, 15) X(MOE_ROUTE, 16) X(MOE_LINEAR, 17) X(MOE_COMBINE, 18)         \
    X(CONV_STATE, 19) X(SSM_SCAN, 20) X(GATED_DELTA, 21) X(LOOKUP, 22) X(LORA, 23)
enum { MN_EMBED_SRC = 0, MN_EMBED_POS = 1, MN_EMBED_ROW_SLOT = 2, MN_EMBED_WEIGHT = 3,
    MN_EMBED_SLOTS = 4, MN_EMBED_HISTORY = 5, MN_EMBED_POS_WEIGHT = 6, MN_EMBED_ROWS = 7 };
enum { MN_EMBED_OUT_X = 0, MN_EMBED_OUT_ROW_POS = 1 };
enum { MN_EMBED_ATTR_SCALE = 0 };
enum { MN_RMS_NORM_X = 0, MN_RMS_NORM_WEIGHT = 1 };
enum { MN_RMS_NORM_OUT_Y = 0 };
enum { MN_RMS_NORM_ATTR_EPS = 0, MN_RMS_NORM_ATTR_OFFSET = 1 };
enum { MN_LAYER_NORM_X = 0, MN_LAYER_NORM_WEIGHT = 1, MN_LAYER_NORM_BIAS = 2 };
enum { MN_LAYER_NORM_OUT_Y = 0 };
enum { MN_LAYER_NORM_ATTR_EPS = 0 };
enum { MN_LINEAR_X = 0, MN_LINEAR_WEIGHT = 1, MN_LINEAR_BIAS = 2 };
enum { MN_LINEAR_OUT_Y = 0 };
enum { MN_ROPE_X = 0, MN_ROPE_ROW_POS = 1, MN_ROPE_FREQS = 2, MN_ROPE_POS = 3, MN_ROPE_AXES = 4 };
enum { MN_ROPE_OUT_Y = 0 };
enum { MN_ROPE_ATTR_PAIRING = 0, MN_ROPE_ATTR_N_ROT = 1, MN_ROPE_ATTR_MSCALE = 2 };
enum { MN_KV_STORE_K = 0, MN_KV_STORE_V = 1, MN_KV_STORE_ROW_POS = 2, MN_KV_STORE_ROW_SLOT = 3,
    MN_KV_STORE_PAGES = 4, MN_KV_STORE_KV = 5 };
enum { MN_KV_STORE_ATTR_KV_LAYER = 0, MN_KV_STORE_ATTR_GROUP = 1 };
enum { MN_ATTENTION_Q = 0, MN_ATTENTION_ROW_POS = 1, MN_ATTENTION_ROW_SLOT = 2,
    MN_ATTENTION_SEQS = 3, MN_ATTENTION_PAGES = 4, MN_ATTENTION_KV = 5, MN_ATTENTION_SINKS = 6,
    MN_ATTENTION_ALIBI = 7, MN_ATTENTION_DISTANCE_BIAS = 8, MN_ATTENTION_LENGTHS = 9,
    MN_ATTENTION_ANCESTORS = 10, MN_ATTENTION_RELATIVE_K = 11, MN_ATTENTION_RELATIVE_Q = 12 };
enum { MN_ATTENTION_OUT_Y = 0 };
enum { MN_ATTENTION_ATTR_SCALE = 0, MN_ATTENTION_ATTR_WINDOW = 1, MN_ATTENTION_ATTR_SOFTCAP = 2,
    MN_ATTENTION_ATTR_KV_LAYER = 3, MN_ATTENTION_ATTR_GROUP = 4, MN_ATTENTION_ATTR_N_HEAD_KV = 5,
    MN_ATTENTION_ATTR_DIM_V = 6, MN_ATTENTION_ATTR_BIDIRECTIONAL = 7,
    MN_ATTENTION_ATTR_V_OF_K = 8, MN_ATTENTION_ATTR_CHUNK = 9,
    MN_ATTENTION_ATTR_MAX_DISTANCE = 10 };
enum { MN_ACT_X = 0 };
enum { MN_ACT_OUT_Y = 0 };
enum { MN_ACT_ATTR_KIND = 0, MN_ACT_ATTR_ALPHA_P = 1, MN_ACT_ATTR_ALPHA_N = 2,
    MN_ACT_ATTR_BETA = 3, MN_ACT_ATTR_EPS = 4 };
enum { MN_GLU_GATE = 0, MN_GLU_UP = 1 };
enum { MN_GLU_OUT_Y = 0 };
enum { MN_GLU_ATTR_KIND = 0, MN_GLU_ATTR_ALPHA = 1, MN_GLU_ATTR_LIMIT = 2,
    MN_GLU_ATTR_UP_OFFSET = 3 };
enum { MN_ADD_A = 0, MN_ADD_B = 1 };
enum { MN_ADD_OUT_Y = 0 };
enum { MN_MUL_A = 0, MN_MUL_B = 1 };
enum { MN_MUL_OUT_Y = 0 };
enum { MN_SCALE_X = 0 };
enum { MN_SCALE_OUT_Y = 0 };
enum { MN_SCALE_ATTR_FACTOR = 0 };
enum { MN_SOFTCAP_X = 0 };
enum { MN_SOFTCAP_OUT_Y = 0 };
enum { MN_SOFTCAP_ATTR_CAP = 0 };
enum { MN_GATHER_ROWS_X = 0, MN_GATHER_ROWS_ROWS = 1 };
enum { MN_GATHER_ROWS_OUT_Y = 0 };
enum { MN_SAMPLE_LOGITS = 0, MN_SAMPLE_OUT_SLOT = 1, MN_SAMPLE_PARAMS = 2, MN_SAMPLE_SLOTS = 3,
    MN_SAMPLE_HISTORY = 4, MN_SAMPLE_BIAS = 5, MN_SAMPLE_MASK = 6, MN_SAMPLE_BIAS_IDS = 7,
    MN_SAMPLE_BIAS_VALUES = 8, MN_SAMPLE_TARGET = 9, MN_SAMPLE_DRAFT = 10,
    MN_SAMPLE_BREAKERS = 11 };
enum { MN_SAMPLE_OUT_IDS = 0, MN_SAMPLE_OUT_TOP_IDS = 1, MN_SAMPLE_OUT_TOP_LOGPROBS = 2,
    MN_SAMPLE_OUT_LOGPROB = 3, MN_SAMPLE_OUT_MU = 4 };
enum { MN_MOE_ROUTE_LOGITS = 0, MN_MOE_ROUTE_BIAS = 1 };
enum { MN_MOE_ROUTE_OUT_EXPERTS = 0, MN_MOE_ROUTE_OUT_WEIGHTS = 1 };
enum { MN_MOE_ROUTE_ATTR_KIND = 0, MN_MOE_ROUTE_ATTR_NORMALISE = 1, MN_MOE_ROUTE_ATTR_SCALE = 2,
    MN_MOE_ROUTE_ATTR_N_GROUP = 3, MN_MOE_ROUTE_ATTR_GROUPS_USED = 4,
    MN_MOE_ROUTE_ATTR_GROUP_SCORE = 5, MN_MOE_ROUTE_ATTR_JITTER = 6 };
enum { MN_MOE_LINEAR_X = 0, MN_MOE_LINEAR_EXPERTS = 1, MN_MOE_LINEAR_WEIGHT = 2,
    MN_MOE_LINEAR_BIAS = 3, MN_MOE_LINEAR_X_WEIGHTS = 4, MN_MOE_LINEAR_RESIDENT = 5 };
enum { MN_MOE_LINEAR_OUT_Y = 0 };
enum { MN_MOE_COMBINE_X = 0, MN_MOE_COMBINE_WEIGHTS = 1, MN_MOE_COMBINE_EXPERTS = 2,
    MN_MOE_COMBINE_RESIDENT = 3, MN_MOE_COMBINE_BASE = 4 };
enum { MN_MOE_COMBINE_OUT_Y = 0 };
enum { MN_CONV_STATE_X = 0, MN_CONV_STATE_WEIGHT = 1, MN_CONV_STATE_ROW_POS = 2,
    MN_CONV_STATE_SEQS = 3, MN_CONV_STATE_STATES = 4, MN_CONV_STATE_STATE = 5,
    MN_CONV_STATE_BIAS = 6 };
enum { MN_CONV_STATE_OUT_Y = 0 };
enum { MN_CONV_STATE_ATTR_LAYER = 0, MN_CONV_STATE_ATTR_GROUP = 1 };
enum { MN_SSM_SCAN_XBC = 0, MN_SSM_SCAN_DT = 1, MN_SSM_SCAN_A = 2, MN_SSM_SCAN_D = 3,
    MN_SSM_SCAN_DT_BIAS = 4, MN_SSM_SCAN_ROW_POS = 5, MN_SSM_SCAN_SEQS = 6,
    MN_SSM_SCAN_STATES = 7, MN_SSM_SCAN_STATE = 8 };
enum { MN_SSM_SCAN_OUT_Y = 0 };
enum { MN_SSM_SCAN_ATTR_LAYER = 0, MN_SSM_SCAN_ATTR_GROUP = 1, MN_SSM_SCAN_ATTR_N_GROUP = 2,
    MN_SSM_SCAN_ATTR_A_LOG = 3, MN_SSM_SCAN_ATTR_DT_MIN = 4, MN_SSM_SCAN_ATTR_DT_MAX = 5 };
enum { MN_GATED_DELTA_QKV = 0, MN_GATED_DELTA_GATE = 1, MN_GATED_DELTA_BETA = 2,
    MN_GATED_DELTA_A = 3, MN_GATED_DELTA_DT_BIAS = 4, MN_GATED_DELTA_ROW_POS = 5,
    MN_GATED_DELTA_SEQS = 6, MN_GATED_DELTA_STATES = 7, MN_GATED_DELTA_STATE = 8 };
enum { MN_GATED_DELTA_OUT_Y = 0 };
enum { MN_GATED_DELTA_ATTR_LAYER = 0, MN_GATED_DELTA_ATTR_GROUP = 1,
    MN_GATED_DELTA_ATTR_N_HEAD_K = 2, MN_GATED_DELTA_ATTR_HEADS = 3,
    MN_GATED_DELTA_ATTR_A_LOG = 4, MN_GATED_DELTA_ATTR_EPS = 5, MN_GATED_DELTA_ATTR_SCALE = 6,
    MN_GATED_DELTA_ATTR_BETA_SCALE = 7 };
enum { MN_LOOKUP_ROW_POS = 0, MN_LOOKUP_ROW_SLOT = 1, MN_LOOKUP_HISTORY = 2, MN_LOOKUP_WEIGHT = 3 };
enum { MN_LOOKUP_OUT_Y = 0 };
enum { MN_LOOKUP_ATTR_FIRST = 0, MN_LOOKUP_ATTR_SCALE = 1 };
enum { MN_LORA_X = 0, MN_LORA_Y = 1, MN_LORA_A = 2, MN_LORA_B = 3, MN_LORA_ADAPTER = 4 };
enum { MN_LORA_OUT_Z = 0 };
/* clang-format on */
/* OPS-END */

/* Values of attributes. */
#define MN_ROPE_HALVES 0u   /* element i pairs with i + n_rot/2 */
#define MN_ROPE_ADJACENT 1u /* element 2i pairs with 2i+1 */
#define MN_ACT_SILU 0u
#define MN_ACT_GELU_ERF 1u
#define MN_ACT_GELU_TANH 2u
#define MN_ACT_RELU 3u
#define MN_ACT_SIGMOID 4u /* this and those that follow: contract 2 */
#define MN_ACT_RELU2 5u
#define MN_ACT_XIELU 6u          /* contract 3, ACT alone */
#define MN_ROUTE_SOFTMAX 0u      /* softmax over all experts, then the k largest */
#define MN_ROUTE_TOPK_SOFTMAX 1u /* the k largest, then softmax over these */
#define MN_ROUTE_SIGMOID 2u      /* sigmoid of each, then the k largest */
#define MN_ROUTE_SPARSEMIXER 3u  /* contract 2: two experts, each by a softmax of its own */

/* ---- the decode loop on the device: the state of a slot -----------------------------------------
 * A slot is one sequence of a session. Its state is in device memory, so that a step which
 * continues it can be enqueued before the previous one has finished. The host resets it by a
 * write; EMBED and SAMPLE advance it. Rows of SLOTS and PARAMS are 4 * dim[1] bytes apart, a
 * multiple of 8 in PARAMS; they may be longer than these structs (the rest is not changed) or,
 * in PARAMS, shorter (missing fields are 0). If a field that has an effect is added later, SAMPLE
 * gets an attribute or a contract version for it. */
#define MN_SLOT_RUNNING 0
#define MN_SLOT_STOPPED 1 /* the last id is a stop id */
#define MN_SLOT_LENGTH 2  /* max_new ids were generated */
#define MN_SLOT_FAILED 3  /* its logits had a NaN, or no finite value */
typedef struct {
    int32_t last_id; /* the newest id: the input of EMBED for src = ~slot */
    int32_t pos;     /* number of stored tokens = the position of the next one */
    int32_t n_drawn;
    int32_t done; /* MN_SLOT_*; a done slot stores no KV and its id is -1 */
    float mu;     /* contract 4 of SAMPLE: mu of mirostat, in bits; at first 2 * mirostat_tau */
    int32_t pad;
} mn_slot;

#define MN_ID_NONE (-1) /* SAMPLE's id: no slot, a done slot, or no finite logit */
#define MN_ID_NAN (-2)  /* SAMPLE's id: a logit was NaN */

/* The samplers of mn_slot_params.samplers. */
#define MN_SAMPLER_PENALTIES 1u
#define MN_SAMPLER_DRY 2u
#define MN_SAMPLER_TOP_N_SIGMA 3u
#define MN_SAMPLER_TOP_K 4u
#define MN_SAMPLER_TYPICAL 5u
#define MN_SAMPLER_TOP_P 6u
#define MN_SAMPLER_MIN_P 7u
#define MN_SAMPLER_XTC 8u
#define MN_SAMPLER_TEMPERATURE 9u
/* The order if mn_slot_params.samplers is 0: by number. */
#define MN_SAMPLERS_DEFAULT 0x987654321u

#define MN_MAX_STOP 32
/* The sampling parameters of a slot; written by the host when a sequence begins. 0 is off for every
 * filter. */
typedef struct {
    uint64_t seed;
    /* <= 0: the arg max (of the penalised logits; the lowest id wins a tie) */
    float temp;
    int32_t top_k;
    float top_p, min_p;
    float repeat_penalty; /* 0 or 1: off */
    float frequency_penalty, presence_penalty;
    int32_t penalty_last_n; /* how many of the newest tokens count; < 0 = all */
    int32_t max_new;        /* maximum of generated ids; 0 = no limit */
    int32_t n_stop;
    int32_t stop[MN_MAX_STOP];
    int32_t min_new; /* stop ids are excluded while n_drawn is below it */
    int32_t pad;
    /* From here on contract 4 of SAMPLE. samplers: MN_SAMPLER_*, 4 bits each, the first in the
     * lowest bits, each at most once; the first 0 ends the list; 0: MN_SAMPLERS_DEFAULT. */
    uint64_t samplers;
    float dry_multiplier, dry_base; /* multiplier 0 or base below 1: off */
    int32_t dry_allowed_length;
    int32_t dry_last_n; /* how many of the newest tokens DRY reads; < 0 = all, 0 = off */
    float top_n_sigma;
    float typical_p;                      /* 0 or >= 1: off */
    float xtc_probability, xtc_threshold; /* probability 0 or threshold above 0.5: off */
    float dynatemp_range, dynatemp_exponent;
    int32_t mirostat; /* 2, or 0: off */
    float mirostat_tau, mirostat_eta;
    int32_t pad_end;
} mn_slot_params;

/* ---- negotiation ---------------------------------------------------------------------------- */
#define MN_VERDICT_NATIVE 2
#define MN_VERDICT_SLOW 1 /* runs, far below the device's rates; reason may state why */
#define MN_VERDICT_NO 0
#define MN_VERDICT_ASK (-1) /* only compile decides */
typedef struct {
    int32_t verdict;
    uint32_t reason;       /* for reason(); 0 = none */
    float one_us, many_us; /* of the node, with 1 row and with 512; 0 = unknown */
} mn_verdict;
/* An operation that the plugin has, and the newest contract of it that it knows. */
typedef struct {
    uint32_t op, contract;
} mn_op_contract;

/* Classes of precision; the finer one has the smaller number. Activations and unpacked weights
 * are rounded, never a stored weight: no weight is requantised across its blocks. Rounding to 16
 * bits is to the type of the weight if it has 16 bits, else to F16 or BF16; values beyond F16
 * become its largest value, NaN and infinity are unchanged. */
#define MN_PRECISION_AUTO 0u
#define MN_PRECISION_EXACT 1u /* f32 activations, f32 KV */
#define MN_PRECISION_A16 2u   /* may round to 16 bits for matrix units; KV f16 */
#define MN_PRECISION_A8 3u    /* may round activations to 8 bits, the rest as in A16; KV f16 */

/* ---- memory of sequences ----------------------------------------------------------------------
 * What layers remember of a sequence lies in pages. Layers that remember in one way are a group
 * (attribute GROUP of their nodes), which has one buffer of n_pages * page_bytes bytes; the plugin
 * defines what is in a page, and a page has its part of every layer of the group. A group is
 *   PAGED  keys and values (KV_STORE, ATTENTION): a page holds page_tokens positions. The input
 *          PAGES names the pages of each slot. The entry of a freed page is -1: no row of the step
 *          attends to its positions, and no plugin reads it.
 *   STATE  numbers that each row of a sequence replaces (CONV_STATE, SSM_SCAN, GATED_DELTA): a page
 *          holds the state of one sequence behind one position. The input STATES names two pages of
 *          each slot: the step reads the first (-1: zeros) and writes into the second the state
 *          behind its last row. Both may be the same page. Neither is a page that the step writes
 *          for another slot. Pages that are kept are snapshots
 * The host states the layers, asks for the layout once, makes the buffer, and gives both to each
 * program that stores or reads: programs of several segments and graphs may share one group, a node
 * may read what another program stored, and several ATTENTION nodes may read one layer. */
#define MN_MEMORY_PAGED 1u
#define MN_MEMORY_STATE 2u
/* One layer of a group. */
typedef struct {
    int64_t layer; /* attribute LAYER (KV_LAYER) of its nodes */
    /* PAGED: as the K [T, Hkv, Dk] and V [T, Hkv, Dv] of KV_STORE; dim_v 0: keys alone.
     * STATE: the dims of the state in docs/ops.md, outermost first: CONV_STATE [1, W - 1, C],
     * SSM_SCAN [H, P, N], GATED_DELTA [Hv, Dk, Dv] */
    uint32_t n_head, dim_k, dim_v;
    uint32_t op;      /* STATE: the operation of the layer's node (MN_OP_*); PAGED: 0 */
    uint64_t n_state; /* STATE: n_head * dim_k * dim_v F32 numbers, else MN_INVALID */
} mn_memory_layer;
typedef struct {
    uint32_t size, group, kind; /* kind: MN_MEMORY_* */
    /* PAGED: MN_F32, MN_F16, ..., of keys and of values; MN_DTYPE_NONE: f32 if the mn_compile that
     * memory_layout got says MN_PRECISION_EXACT (or AUTO, and its estimate says so), else f16; the
     * plugin keeps what it chose in the cookie */
    uint32_t k_dtype, v_dtype;
    uint32_t n_layers, layer_stride, pad;
    /* each once; a layer's place in a page follows from its index here */
    const mn_memory_layer *layers;
} mn_memory_params;

#define MN_MEMORY_ZEROED 1u /* the buffer must be zeroed; else its contents may be anything */
typedef struct {
    uint32_t size, page_tokens; /* page_tokens: STATE: 0 */
    uint64_t page_bytes, flags; /* MN_MEMORY_ZEROED */
    uint64_t cookie;            /* for the plugin */
} mn_memory_layout;
/* A group of mn_compile. layout: the unchanged output of memory_layout for the same parameters, of
 * any segment or graph; NULL except in compile. */
typedef struct {
    const mn_memory_params *params;
    const mn_memory_layout *layout;
} mn_memory_use;
/* The first n_tokens positions of a page; with STATE the whole page; positions behind them in
 * dst_page are undefined afterwards. No page is both source and destination of one call. */
typedef struct {
    uint32_t src_page, dst_page, n_tokens, pad;
} mn_page_copy;

/* The input of compile. Also the input of supports, memory_layout, estimate and weights_open, which
 * do not read weights, cache and mn_memory_use.layout. A segment is the nodes [node_lo, node_hi). A
 * tensor that crosses its ends (made inside and read outside, or the reverse) is a boundary tensor:
 * the host binds it like an input or output, dense and row-major, FLOAT as f32 and others as
 * declared, whatever its role. A segment without nodes is legal: its steps do nothing. */
typedef struct {
    uint32_t size, precision; /* MN_PRECISION_* */
    const mn_graph *graph;
    uint32_t node_lo, node_hi;
    /* [n_symbols], each at most mn_symbol.max: the bounds of this program, and the values of
     * dims of BOUND symbols */
    const int64_t *symbol_max;
    /* A sealed set whose weights have the names, types and dims that the segment reads; programs of
     * several graphs may share one set. A set that does not match is MN_UNSUPPORTED. */
    mn_weights *weights;
    mn_str cache; /* the output of an earlier program_save, or empty */
    /* one entry for each group that nodes of the segment store or read. A missing group or layer is
     * MN_INVALID; further ones are ignored */
    const mn_memory_use *memory;
    uint32_t n_memory, memory_stride;
    uint64_t flags; /* MN_COMPILE_* */
    /* sets of bindings of each context of the program; 0 = 1. A plugin has room for 2 at least, and
     * above its limit returns MN_UNSUPPORTED; the scratch of its estimate is that of all sets.
     * Captured graphs of one set stay valid when another set is bound */
    uint32_t n_sets, pad;
} mn_compile;
#define MN_COMPILE_DETERMINISTIC 1u
/* of weights_open and estimate, and of no meaning elsewhere: a tensor may be put again after the
 * seal. The set keeps copies of its own, MN_KEPT_ALIASED is not set */
#define MN_COMPILE_UPDATES 2u

/* in this class the results of a row have the same bits, whatever other rows the step has */
#define MN_ESTIMATE_DETERMINISTIC 1u
typedef struct {
    /* precision: the class that the device would use: the requested class or a finer one; for AUTO
     * the device's fastest class for these weights */
    uint32_t size, precision;
    /* upper bounds in bytes. weights: a weight that is used in place counts 0; scratch: of one
     * context; host_pinned: memory of the plugin; import_peak: memory beyond weights during the
     * import */
    uint64_t weights, scratch, host_pinned, import_peak;
    double decode_us, prefill_us; /* one token of one sequence; 512 tokens; 0 = unknown */
    /* SHAPE symbols are rounded up to powers of two below row_grain, to its multiples from it
     * on; 0 = always powers of two, 1 = not rounded */
    uint32_t row_grain;
    uint32_t flags; /* MN_ESTIMATE_* */
} mn_estimate;

/* ---- weights: a tensor is parts x planes, described as stored, never converted by the host --- */
#define MN_PLANE_DATA 1u
#define MN_PLANE_SCALE 2u
#define MN_PLANE_BIAS 3u
#define MN_PLANE_TENSOR_SCALE 4u /* F32, one value for the part: dims of 1, strides 0 */
#define MN_PLANE_PICK 5u         /* I32, a value per column: which scale and bias of its row */
typedef struct {
    const void *ptr; /* inside a mapped file, or a block of the loader's (mn_tensor_info) */
    /* from ptr to the end of the last block that the strides reach. For interleaved weights that is
     * more than the data, and planes of different tensors may overlap */
    uint64_t bytes;
    /* dtype: for a DATA plane the dtype of the tensor (MN_Q8_0), else the dtype of the plane's
     * values; the dtype defines the order of nibbles */
    uint32_t kind, dtype;
    /* dim counts the values of the plane (a DATA plane: elements, in the dims of the tensor; a
     * SCALE plane: blocks); stride: bytes per step of each dim (of the last: per block), not
     * negative: transposed and interleaved weights are described by strides */
    int64_t dim[MN_MAX_DIM], stride[MN_MAX_DIM];
} mn_plane;
typedef struct {
    uint32_t size, tensor; /* index in the graph */
    /* parts stack along dim[0]: experts stored one by one, blocks of rows */
    uint32_t n_parts, n_planes, plane_stride, pad;
    const mn_plane *planes; /* [n_parts][n_planes] */
    mn_dtype dtype;
} mn_weight_src;
#define MN_KEPT_ALIASED                                                                            \
    1u /* the mapped file is used in place: it stays mapped until weights_free */
#define MN_KEPT_COPIED 2u
#define MN_KEPT_REPACKED 4u

/* ---- programs ------------------------------------------------------------------------------- */
/* The ranges of one set do not overlap, unless no node of the segment writes either tensor. The
 * host guarantees it; a plugin need not check. */
typedef struct {
    uint32_t tensor, flags;
    mn_buffer *buffer;
    uint64_t offset, bytes;
} mn_binding;
/* ---- parameters of calls (R10) --------------------------------------------------------------- */
#define MN_MEM_DEVICE 1u /* mn_alloc_params.kind */
#define MN_MEM_HOST_PINNED 2u
#define MN_ALLOC_UNZEROED 1u /* mn_alloc_params.flags: the contents may be anything; else zeroed */
typedef struct {
    uint32_t size, kind; /* kind: MN_MEM_* */
    uint64_t bytes;      /* 0 is legal */
    /* of the memory, a power of 2; 0: mn_device_info.align. More than that may be MN_UNSUPPORTED */
    uint64_t align;
    uint64_t flags; /* MN_ALLOC_* */
    uint32_t numa;  /* a wish: of host memory, the number of its node + 1; 0: any */
    uint32_t pad;
} mn_alloc_params;

typedef struct {
    uint32_t size, flags;
    int32_t priority; /* a wish: among the queues of a device higher comes first; 0 is the usual */
    uint32_t pad;
} mn_queue_params;

typedef struct {
    uint32_t size, flags;
    /* not empty: the mn_device_info.uid that the device must have, since another process may have
     * listed it; MN_NO_DEVICE: device i of this process has another uid */
    mn_str uid;
} mn_open_params;

typedef struct {
    uint32_t size, flags;
    mn_queue *queue; /* not NULL; the steps of the context run in its order */
} mn_context_params;

/* A 32-bit word in a HOST_PINNED buffer, or one from wrap, of the device that executes; offset: a
 * multiple of 4. A wait is an acquire, a write a release: a reader that has seen a step's signals
 * sees all that the step wrote. */
typedef struct {
    mn_buffer *buffer;
    uint64_t offset;
    uint32_t value, pad;
} mn_word;

/* One step: the input of execute, context_prepare and mn_profile.execute. context_prepare reads set
 * and values alone.
 *
 * waits, signals: work of two devices in turns. Before its first node the step waits until each
 * word of waits has reached its value, (int32_t)(word - value) >= 0; behind its last node it writes
 * the words of signals, also where the work fails or is aborted. If execute returns an error,
 * nothing is enqueued, and no word is written. Stream waits or events do it, never a kernel that
 * spins; a CPU polls some microseconds, then sleeps. Waits are for devices with MN_DEVICE_ASYNC.
 * MN_UNSUPPORTED: the plugin has no words. */
typedef struct {
    uint32_t size;
    uint32_t set;          /* below mn_compile.n_sets, and bound */
    const int64_t *values; /* [n_symbols] */
    uint64_t flags;
    const mn_word *waits, *signals;
    uint32_t n_waits, n_signals, word_stride;
    int32_t priority; /* a wish, on top of the queue's */
    /* a wish: the time (mn_host.now_ns) from which on the result is useless. A step that has not
     * begun by then may be dropped: execute returns MN_TOO_LATE, or wait for its event does; no
     * state is touched, and later steps of the queue run. 0: none */
    uint64_t deadline_ns;
} mn_step;

/* status = MN_OK or an error whose class states what to do. Outputs are unchanged after an error
 * unless documented otherwise. All functions are required unless marked optional; a function that a
 * device cannot support returns MN_UNSUPPORTED. Events: a NULL event is complete, everywhere. An
 * mn_event ** may be NULL (not needed) and may be set to NULL; wait, queue_wait and event_free
 * accept NULL. An event may be waited for again. */
typedef struct {
    uint32_t size, flags;
    /* ---- discovery; called first in the probing process ---- */
    /* no device: 0, or MN_NO_DEVICE with the reason */
    mn_status(MN_CALL *device_count)(void *self, uint32_t *n, mn_error *);
    /* fast: keeps no memory of the device allocated; i past the last: MN_NO_DEVICE */
    mn_status(MN_CALL *device_info)(void *self, uint32_t i, mn_device_info *, mn_error *);
    /* i past the last: MN_NO_DEVICE. An index means the same device as long as the process lives */
    mn_status(MN_CALL *device_open)(void *self, uint32_t i, const mn_open_params *, mn_device **,
                                    mn_error *);
    void(MN_CALL *device_close)(mn_device *);
    /* optional: the values at the time of the call */
    mn_status(MN_CALL *device_memory)(mn_device *, uint64_t *free_bytes, uint64_t *total,
                                      mn_error *);
    mn_status(MN_CALL *self_test)(mn_device *,
                                  mn_error *); /* optional: a small kernel and a copy back */
    /* ---- negotiation: pure, no device work ---- */
    /* the plugin's table, for its lifetime; stride: of its elements */
    mn_status(MN_CALL *contracts)(void *self, const mn_op_contract **, uint32_t *n,
                                  uint32_t *stride);
    /* one verdict per node of the segment, of node_lo first. A request that suits no node (class,
     * types of the cache, sizes) is MN_UNSUPPORTED, and no verdict is read */
    mn_status(MN_CALL *supports)(mn_device *, const mn_compile *, mn_verdict *, uint32_t stride,
                                 mn_error *);
    /* optional; NUL-terminated */
    mn_status(MN_CALL *reason)(void *self, uint32_t reason, char *buf, uint32_t cap);
    /* before any weight is loaded */
    mn_status(MN_CALL *estimate)(mn_device *, const mn_compile *, mn_estimate *, mn_error *);
    /* ---- memory, queues, events ---- */
    mn_status(MN_CALL *alloc)(mn_device *, const mn_alloc_params *, mn_buffer **, mn_error *);
    /* optional: without a copy, or MN_UNSUPPORTED; the host memory outlives the buffer. Memory that
     * processes share (a memfd) is mapped by the host and wrapped like any other; the id
     * "mn.external/1" is reserved for memory that only a driver can import (a dma-buf) */
    mn_status(MN_CALL *wrap)(mn_device *, void *host, uint64_t bytes, mn_buffer **, mn_error *);
    void(MN_CALL *buffer_free)(mn_buffer *);
    /* host-pinned and unified only; until buffer_free. Written by the host before work is enqueued,
     * read after its event */
    mn_status(MN_CALL *map)(mn_buffer *, void **, mn_error *);
    mn_status(MN_CALL *queue_create)(mn_device *, const mn_queue_params *, mn_queue **, mn_error *);
    void(MN_CALL *queue_free)(mn_queue *);
    /* in queue order; the source is copied before it returns */
    mn_status(MN_CALL *write)(mn_queue *, mn_buffer *, uint64_t off, const void *, uint64_t n,
                              mn_error *);
    mn_status(MN_CALL *read)(mn_queue *, const mn_buffer *, uint64_t off, mn_buffer *host_pinned,
                             uint64_t host_off, uint64_t n, mn_event **, mn_error *);
    /* between buffers of the device, also host-pinned ones; the source is read when the queue
     * executes the copy, not during the call */
    mn_status(MN_CALL *copy)(mn_queue *, mn_buffer *dst, uint64_t dst_off, const mn_buffer *src,
                             uint64_t src_off, uint64_t n, mn_event **, mn_error *);
    /* timeout 0 polls; MN_TIMEOUT = not complete yet */
    mn_status(MN_CALL *wait)(mn_event *, uint64_t timeout_ns, mn_error *);
    mn_status(MN_CALL *queue_wait)(mn_queue *, mn_event *, mn_error *);
    void(MN_CALL *event_free)(mn_event *);
    /* optional; any thread, also while another waits. Calls fn(arg, status) once, when the event is
     * complete, with the status that wait would return (MN_CANCELLED after abort): from a thread of
     * the plugin, or before it returns. Each of several calls has its own; none if it returns an
     * error. fn calls no function of the
     * plugin. The event may be freed meanwhile; the device is closed when all have been called */
    mn_status(MN_CALL *event_on_ready)(mn_event *, void(MN_CALL *fn)(void *arg, mn_status),
                                       void *arg, mn_error *);
    /* optional; any thread; running work may finish, waiting work is dropped; later calls return
     * MN_CANCELLED, and all events become complete */
    mn_status(MN_CALL *abort)(mn_queue *);
    /* ---- weights: opened for a graph segment, so that the plugin may fuse, interleave and shard;
     * streamed; sealed. Sources stay valid until the event, and if sealed with MN_KEPT_ALIASED
     * until weights_free. ---- */
    mn_status(MN_CALL *weights_open)(mn_device *, const mn_compile *, mn_weights **, mn_error *);
    /* each tensor once (else MN_INVALID); a tensor that the segment does not read returns MN_OK.
     * With MN_COMPILE_UPDATES also after the seal, whole, with the type and dims of before, one
     * thread at a time, while no program of another thread reads the set: steps that are
     * enqueued later read the new values, those before the old ones; steps of other queues are
     * over before the call. After an error the tensor's values are undefined until a put succeeds.
     * One thread at a time, unless the device has MN_DEVICE_PARALLEL_PUT; the host may put the next
     * weight before the event of the last weight is complete */
    mn_status(MN_CALL *weights_put)(mn_weights *, mn_queue *, const mn_weight_src *, mn_event **,
                                    mn_error *);
    /* MN_KEPT_* bits; MN_INVALID names a weight that is missing */
    mn_status(MN_CALL *weights_seal)(mn_weights *, mn_queue *, uint32_t *kept_how, mn_error *);
    void(MN_CALL *weights_free)(mn_weights *);
    /* ---- memory of sequences: contents opaque; all nodes that store or read a layer are on one
     * device ---- */
    /* Of a group of mn_compile.memory. A function of its parameters and of the class; of the
     * segment only where the device is a group (mn.group/1). */
    mn_status(MN_CALL *memory_layout)(mn_device *, const mn_compile *, uint32_t group,
                                      mn_memory_layout *, mn_error *);
    /* layout: the unchanged output of memory_layout for the group */
    mn_status(MN_CALL *memory_copy)(mn_queue *, mn_buffer *, const mn_memory_layout *,
                                    const mn_page_copy *, uint32_t n, uint32_t stride, mn_event **,
                                    mn_error *);
    /* ---- programs: compiled once for all symbol values within bounds. A context owns scratch and
     * captured graphs. ---- */
    /* err.node: the refused node */
    mn_status(MN_CALL *compile)(mn_device *, const mn_compile *, mn_program **, mn_error *);
    void(MN_CALL *program_free)(mn_program *);
    /* optional; *bytes: capacity in, size out; dst NULL: size query */
    mn_status(MN_CALL *program_save)(const mn_program *, void *dst, uint64_t *bytes);
    mn_status(MN_CALL *context_create)(mn_program *, const mn_context_params *, mn_context **,
                                       mn_error *);
    /* replaces all bindings of the set (below mn_compile.n_sets); each tensor once, and no weights,
     * else MN_INVALID. After an error nothing is bound. Other sets are unchanged */
    mn_status(MN_CALL *context_bind)(mn_context *, uint32_t set, const mn_binding *, uint32_t n,
                                     uint32_t stride, mn_error *);
    /* optional; the set is bound: makes everything that a first execute with these values needs */
    mn_status(MN_CALL *context_prepare)(mn_context *, const mn_step *, mn_error *);
    /* allocates nothing for prepared values; bad values, or a set that is not bound: MN_INVALID */
    mn_status(MN_CALL *execute)(mn_context *, const mn_step *, mn_event **event_or_null,
                                mn_error *);
    void(MN_CALL *context_free)(mn_context *);
} mn_backend; /* "mn.backend/1" */

/* ---- "mn.profile/1", optional beside a backend: the time of each unit of a step -------------- */
/* One unit of a program: one node or several fused nodes. */
typedef struct {
    uint32_t node, n_nodes; /* the node that names the unit; the number of nodes that it fuses; 0:
                             * one more part of a node that an earlier unit has counted */
    uint64_t time_ns;       /* from the end of the unit before to the end of this one */
    uint64_t bytes, flop;   /* computed: read and written; 2 per multiply-add. 0 = unknown */
    char name[40];          /* "NORM+LINEAR+GLU" */
} mn_profile_unit;
typedef struct {
    uint32_t size, flags;
    /* execute with a time for every unit, in order; waits for its end. Results and changes of
     * state are those of execute. *n: capacity in, number of units out; units beyond the
     * capacity are not written. units may be NULL with *n = 0: only the number is returned,
     * nothing is run. */
    mn_status(MN_CALL *execute)(mn_context *, const mn_step *, mn_profile_unit *units,
                                uint32_t stride, uint32_t *n, mn_error *);
} mn_profile;

/* ---- "mn.kv/1", optional beside a backend: memory of sequences outside of the device --------- */
/* What a page holds, in a form that all devices share, so that a sequence can move to another
 * device, class, process or file: layer after layer in the order of mn_memory_params.layers, F32,
 * dense,
 *   PAGED  K [n_tokens, n_head, dim_k], then V [n_tokens, n_head, dim_v]
 *   STATE  the state of docs/ops.md [n_head, dim_k, dim_v]
 * Out and in again on one device leaves the bits of a cache of F32, F16 or BF16 and of a state. */
typedef struct {
    uint32_t size, page;
    uint32_t n_tokens; /* PAGED: the first ones of the page, 1 to page_tokens; STATE: 0 */
    uint32_t pad;
    const mn_memory_params *params; /* where dim_v is 0 there is no V */
    const mn_memory_layout *layout; /* the unchanged output of memory_layout for params */
    mn_buffer *memory;              /* of the group */
    mn_buffer *host;                /* HOST_PINNED, or from wrap */
    uint64_t offset;                /* in host, a multiple of 4 */
} mn_kv_page;
/* In queue order; host is written, or read, when the event is complete. A page or n_tokens out of
 * range, or a host range that is too short: MN_INVALID. A group of devices may say
 * MN_UNSUPPORTED. */
typedef struct {
    uint32_t size, flags;
    mn_status(MN_CALL *get)(mn_queue *, const mn_kv_page *, mn_event **, mn_error *);
    /* positions of the page behind n_tokens are undefined afterwards */
    mn_status(MN_CALL *put)(mn_queue *, const mn_kv_page *, mn_event **, mn_error *);
} mn_kv_moves; /* "mn.kv/1" */

/* ---- "mn.x.experts/1", a draft beside a backend: sets that hold some of the experts ---------- */
/* A weight [E, N, K] of MOE_LINEAR nodes that have RESIDENT (else MN_INVALID), of which the set has
 * memory for `room` experts, 1 to E - 1. Its biases are held whole. The room's bytes are its share
 * of the weight's, which `estimate` counts whole. */
typedef struct {
    uint32_t tensor, room;
} mn_experts_room;
typedef struct {
    uint32_t size, flags;
    /* as weights_open. Tensors of rooms are not put, and hold no expert at first; seal does not
     * miss them */
    mn_status(MN_CALL *open)(mn_device *, const mn_compile *, const mn_experts_room *, uint32_t n,
                             uint32_t stride, mn_weights **, mn_error *);
    /* After the seal: the experts of the tensor join those that are there, in queue order; src is
     * the whole tensor, and is read until the event. One that is there already is not read again.
     * No room for all: MN_OUT_OF_MEMORY, and nothing has changed. experts, which is read during the
     * call: each in [0, E), once. The host sets RESIDENT for steps that it enqueues later; steps of
     * other queues are over before the call, here and in drop */
    mn_status(MN_CALL *bring)(mn_weights *, mn_queue *, const mn_weight_src *src,
                              const int32_t *experts, uint32_t n, mn_event **, mn_error *);
    /* No step that is enqueued later computes them. One that is not there: MN_INVALID */
    mn_status(MN_CALL *drop)(mn_weights *, mn_queue *, uint32_t tensor, const int32_t *experts,
                             uint32_t n, mn_error *);
} mn_experts; /* "mn.x.experts/1" */

/* ---- "mn.group/1", optional beside a backend: several devices as one ------------------------- */
/* The group is an mn_device like others: the plugin shards weights and KV over its members and
 * owns the collectives; the host sees one device, one queue order and one set of buffers.
 * Results are those of one device, the same bits from run to run. Sizes count one member: alloc
 * allocates its bytes on each member (pinned memory: once), device_memory returns the least memory
 * of a member, estimate and page_bytes the largest share. device_close closes the group, which is
 * lost with any member. */
typedef struct {
    uint32_t size, flags;
    /* members: n >= 2 different indices of device_info, in the order of ranks. MN_UNSUPPORTED:
     * these devices cannot form a group; the message states why */
    mn_status(MN_CALL *open)(void *self, const uint32_t *members, uint32_t n, mn_device **,
                             mn_error *);
    /* the values of one member, by rank, at the time of the call; device_memory returns the least
     * values */
    mn_status(MN_CALL *memory)(mn_device *, uint32_t rank, uint64_t *free_bytes, uint64_t *total,
                               mn_error *);
    /* weights, scratch, host_pinned and import_peak count one member, the times the whole group */
    mn_status(MN_CALL *member_estimate)(mn_device *, uint32_t rank, const mn_compile *,
                                        mn_estimate *, mn_error *);
    /* ---- optional, both or none: one member in each of several processes ---- */
    /* id: id_bytes that no other group has had; rank 0 makes the id, and the host sends it to the
     * other ranks */
    mn_status(MN_CALL *make_id)(void *self, uint8_t *id, mn_error *);
    /* Device `index` of this process as member `rank` of n >= 2. Returns when all have joined;
     * MN_TIMEOUT: some have not after a minute. The device is the group: graphs, sizes, layouts,
     * estimates and results are as with `open`. Hosts make the same calls in the same order if they
     * change contents (write, copy between device buffers, weights_*, memory_copy, context_*,
     * execute); each puts whole weights, and its member takes a share. read, map, wait, host-pinned
     * memory and copies from or to it concern one process. memory of another rank: MN_UNSUPPORTED.
     * Only join, context_prepare and execute wait for other processes; if one has ended, the host
     * ends this process, which may be inside a call. */
    mn_status(MN_CALL *join)(void *self, uint32_t index, uint32_t rank, uint32_t n,
                             const uint8_t *id, mn_device **, mn_error *);
    uint32_t id_bytes; /* of an id, at most 4096; 0 without make_id */
    uint32_t pad;
} mn_group;

/* ---- "mn.types/1", optional beside a backend or a loader: types of a vendor ---------- */
/* A type with an id of a vendor (MN_VENDOR). Ids are a plugin's own: the host joins the types of
 * two plugins by name, gives each plugin its own id (0 for a type that the plugin does not name),
 * and refuses two that differ in the numbers of dtype. Where a device's plugin does not have the
 * type, the host unpacks weights by to_f32. */
typedef struct {
    uint32_t size, pad;
    /* "vendor.q3x": a letter first, then [a-z0-9_.] with at least one '.'; "mn." is ours */
    mn_str name;
    /* of several planes DATA is the first; the others have the kinds and the order that the loader
     * gives them in mn_tensor_info.planes */
    mn_dtype dtype;
    /* Elements of blocks [block, block + n_blocks) of one row. planes [n_planes] describe that row
     * only: ptr is its first block, dim[0] the number of its values, stride[0] the bytes from one
     * block to the next. Any thread. A backend may leave it NULL */
    mn_status(MN_CALL *to_f32)(void *self, const mn_plane *planes, uint32_t n_planes,
                               uint64_t block, uint64_t n_blocks, float *out);
} mn_type;
typedef struct {
    uint32_t size, flags;
    /* always the same; texts live as long as the plugin; MN_END past the last, at most 64 */
    mn_status(MN_CALL *type_at)(void *self, uint32_t i, mn_type *, mn_error *);
} mn_types;

/* ==== loader =====================================================================================
 * The host opens and maps the files and checks bounds; the plugin parses. It opens no file and
 * computes nothing. Everything that it returns stays valid until close; files stay mapped until
 * then. */

/* A file of the model, by base name. Files are sorted by the bytes of their names. Every loader
 * gets the same files: those of the patterns of all loaders, and the host's own companion files
 * (tokenizer.json, chat_template.jinja, ...). */
#define MN_FILE_NAMED 1u /* the user named this file; not set if the user named a folder */
typedef struct {
    mn_str name;
    const void *map;
    uint64_t bytes;
    uint32_t flags, pad; /* MN_FILE_*; others may be added: ignore them */
} mn_file;

/* Which files belong to a format: the host collects them before it calls guess. text is a base name
 * of at most 255 bytes in which each '*' stands for any characters, as few as fit, and each '#' for
 * a number, all of its digits; case counts. At most 2 of each; a '#' is not followed by a digit or
 * another '#'; at least one character is none of '*', '#' and '.'.
 *
 * If the user names a file, the host matches SHARD, then MODEL, then the others:
 *   a SHARD    is collected with the other shards and companions; a missing shard is an error
 *   a MODEL    is collected with companions, without the other models of its folder
 *   FOLDER, COMPANION  as if the user named the folder
 *   no pattern matches: as a MODEL, with the companions of all formats
 * Of a folder, all files that match a pattern are collected; at least one must be a SHARD, MODEL
 * or FOLDER. Companions are the FOLDER and COMPANION files of the formats that match the file,
 * and the host's own unless it is WHOLE. Names in a folder that begin with '.' are ignored. */
#define MN_PATTERN_MODEL 1u /* "*.gguf": a file that is a model by itself */
/* "*-#-of-#.gguf": one of several, with exactly two '#': the number of the shard, from 1 (or
 * from 0, if there is a shard 0), and the number of shards. Files with the same text in place of
 * '*' and the last '#' belong together. */
#define MN_PATTERN_SHARD 2u
#define MN_PATTERN_FOLDER 3u /* "config.json": a folder with this file is a model of the format */
#define MN_PATTERN_COMPANION 4u /* "*.index": mapped, too, if the folder has it */
/* flag of MODEL and SHARD: tokeniser, chat template and defaults are inside, so that none of the
 * host's companion files belongs to the named file */
#define MN_PATTERN_WHOLE 1u
typedef struct {
    uint32_t size, kind;
    mn_str text;
    uint32_t flags, pad; /* MN_PATTERN_WHOLE */
} mn_file_pattern;

/* confidence: 0 (another format) to 100; the highest loader opens; format: "gguf". A damaged or
 * newer file of its own format keeps its confidence, so that open can say what is wrong with it */
typedef struct {
    uint32_t size, confidence;
    char format[32], why[88];
} mn_guess;

#define MN_VALUE_INT 1u   /* i; an unsigned value above INT64_MAX is a bad file */
#define MN_VALUE_FLOAT 2u /* f */
#define MN_VALUE_BOOL 3u  /* i: 0 or 1 */
#define MN_VALUE_STR 4u   /* s */
/* | one of the above: array, n elements of int64_t, double, uint8_t or mn_str */
#define MN_VALUE_ARRAY 16u
typedef struct {
    uint32_t size, type;
    int64_t i;
    double f;
    mn_str s;
    const void *array;
    uint64_t n;
} mn_value;

typedef struct {
    uint32_t size, n_parts, n_planes, plane_stride;
    /* the canonical name (GGUF's) and the name in the file; a tensor without a canonical name has
     * the name in the file twice */
    mn_str name, native;
    mn_dtype dtype;
    /* dim[0] outermost (GGUF's order reversed): a matrix is [rows, columns] */
    int64_t dim[MN_MAX_DIM];
    uint32_t n_dim, pad;
    /* [n_parts][n_planes]; pointers into the mapped files or, for codes in an order that no stride
     * describes, into one block from mn_host.alloc that lives until close; checked by the host */
    const mn_plane *planes;
} mn_tensor_info;

/* Keys that a loader sets in addition to GGUF's if the format does not define them:
 *   minerva.rope.pairing         STR "halves" | "adjacent"   how q and k rows are ordered
 *   minerva.norm.offset          FLOAT  added to every norm weight (Gemma: 1 unless baked in)
 *   minerva.hidden_act           STR "silu", "gelu", ...     of the feed-forward part
 *   minerva.tie_word_embeddings  BOOL   the output matrix is the embedding table */
typedef struct {
    uint32_t size, flags;
    /* reads headers only; the array of files is valid during the call, here and in open */
    mn_status(MN_CALL *guess)(void *self, const mn_file *, uint32_t n, uint32_t stride, mn_guess *);
    mn_status(MN_CALL *open)(void *self, const mn_file *, uint32_t n, uint32_t stride, mn_parsed **,
                             mn_error *);
    /* native: the key in the file, or key again; MN_END past the last. The host passes all three
     * pointers */
    mn_status(MN_CALL *meta_at)(mn_parsed *, uint32_t i, mn_str *key, mn_str *native, mn_value *);
    mn_status(MN_CALL *tensor_at)(mn_parsed *, uint32_t i,
                                  mn_tensor_info *); /* MN_END past the last */
    void(MN_CALL *close)(mn_parsed *);
    /* always the same; texts live as long as the plugin; MN_END past the last. At least one MODEL,
     * SHARD or FOLDER, at most 64 in all */
    mn_status(MN_CALL *patterns)(void *self, uint32_t i, mn_file_pattern *);
} mn_loader; /* "mn.loader/1" */

#ifdef __cplusplus
}
#endif
#endif
