/* args.c -- what every function of minerva.h checks of its arguments: pointers that are NULL, and
 * structs whose size says that their owner forgot it. Here, so that the messages are the same
 * everywhere and a caller's slip is never ignored. */
#include "opened/opened.h"
#include <string.h>

/* first: bytes of the struct as the first release, 0.1.0, has it: up to that member. This never
 * changes, whatever is appended. */
#define ROW(T, last)                                                                               \
    { #T, MN_UP_TO(T, last), sizeof(T) }
static const struct {
    const char *name;
    size_t first;
    size_t bytes;
} structs[MN_SIZED_COUNT] = {
    [MN_SIZED_RUNTIME_PARAMS] = ROW(mn_runtime_params, settings),
    [MN_SIZED_MODEL_PARAMS] = ROW(mn_model_params, flags),
    [MN_SIZED_MODEL_INFO] = ROW(mn_model_info, has_chat_template),
    [MN_SIZED_CONVERT_PARAMS] = ROW(mn_convert_params, arg),
    [MN_SIZED_CHAT_PARAMS] = ROW(mn_chat_params, vars),
    [MN_SIZED_SESSION_PARAMS] = ROW(mn_session_params, flags),
    [MN_SIZED_SESSION_INFO] = ROW(mn_session_info, pad),
    [MN_SIZED_SAMPLE_PARAMS] = ROW(mn_sample_params, stop),
    [MN_SIZED_SESSION_STATS] = ROW(mn_session_stats, restore_s),
    [MN_SIZED_EMBED_PARAMS] = ROW(mn_embed_params, n_dim),
    [MN_SIZED_REQUEST_PARAMS] = ROW(mn_request_params, user),
    [MN_SIZED_REQUEST_EVENTS] = ROW(mn_request_events, events),
    [MN_SIZED_CONSTRAINT_PARAMS] = ROW(mn_constraint_params, flags),
    [MN_SIZED_SESSION_LOAD] = ROW(mn_session_load, beat_ms),
    [MN_SIZED_FOUND_ITEM] = ROW(mn_found_item, used),
    [MN_SIZED_HUB_NAME] = ROW(mn_hub_name, folder),
    [MN_SIZED_HUB_CHOICE] = ROW(mn_hub_choice, remark),
    [MN_SIZED_ADAPTER_ROOM] = ROW(mn_adapter_room, dtype),
    [MN_SIZED_ADAPTER_ITEM] = ROW(mn_adapter_item, path),
};

mn_status mn_args_need(mn_error *err, const char *function, const mn_arg *args) {
    for (; args->name; args++)
        if (!args->value)
            return mn_fail(err, MN_INVALID, "%s: %s is NULL", function, args->name);
    return MN_OK;
}

mn_status mn_args_same_process(mn_error *err, const char *function, const mn_runtime *rt) {
    if (!mn_pool_is_stranded(rt->pool))
        return MN_OK;
    return mn_fail(err, MN_INVALID,
                   "%s: its runtime belongs to the process that this one was forked from: create "
                   "another runtime in this process",
                   function);
}

mn_status mn_args_text(mn_error *err, const char *function, const char *name, mn_str text) {
    if (text.ptr || !text.len)
        return MN_OK;
    return mn_fail(err, MN_INVALID, "%s: %s is NULL, but has %llu bytes", function, name,
                   (unsigned long long)text.len);
}

mn_status mn_args_flags(mn_error *err, const char *name, uint32_t given, uint32_t known) {
    if (!(given & ~known))
        return MN_OK;
    return mn_fail(err, MN_INVALID, "%s: found %#x, expected none but %#x", name, given, known);
}

/* Below the size of the first release: it was forgotten. */
static mn_status check_size(mn_sized which, uint32_t size, mn_error *err) {
    if (size >= structs[which].first)
        return MN_OK;
    return mn_fail(err, MN_INVALID, "%s.size: found %u, expected at least %zu: set it to sizeof",
                   structs[which].name, size, structs[which].first);
}

static uint32_t size_of(const void *sized) {
    uint32_t size;
    memcpy(&size, sized, sizeof size);
    return size;
}

mn_status mn_args_take(mn_sized which, void *own, const void *given, mn_error *err) {
    if (!given)
        return MN_OK;
    const uint32_t bytes = (uint32_t)structs[which].bytes;
    const uint32_t size = size_of(given);
    mn_status st = check_size(which, size, err);
    if (st)
        return st;
    memcpy(own, given, MN_MIN(size, bytes));
    memcpy(own, &bytes, sizeof bytes);
    return MN_OK;
}

mn_status mn_args_give(mn_sized which, void *out, const void *own) {
    if (!out || check_size(which, size_of(out), NULL))
        return MN_INVALID;
    const uint32_t bytes = (uint32_t)MN_MIN(size_of(out), structs[which].bytes);
    memcpy(out, own, bytes);
    memcpy(out, &bytes, sizeof bytes);
    return MN_OK;
}
