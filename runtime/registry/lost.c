/* lost.c -- devices that were lost: who still uses them, when they are closed, when they are tried
 * again.
 *
 * A plugin says MN_CLASS_LOST once for all that stands on a device. The device is closed when its
 * last user has released it, and not before: what was made of it is freed by whoever made it. It is
 * opened again by the first negotiation that may choose it after a delay; the opening, which may
 * take a driver seconds, is done without the lock, by one thread, while others see the device as it
 * was: lost. Why a device was lost is read without a lock by anybody, at any later time: such texts
 * live as long as the registry, each once, and there is an end to them. */
#include "registry/internal.h"
#include <stdio.h>
#include <string.h>

enum { MAX_LOSSES = 64 }; /* different reasons that are kept per device */

typedef struct mn_loss {
    struct mn_loss *next;
    char text[];
} mn_loss;

static mn_device_state *lost_state_of(const mn_registry *reg, const mn_device_record *rec) {
    return &reg->state[rec - reg->devices];
}

void mn_registry_set_delays(mn_registry *reg, uint64_t first_ns, uint64_t most_ns) {
    reg->first_delay_ns = first_ns;
    reg->most_delay_ns = most_ns;
}

static void close_device(const mn_device_record *rec, mn_device *device) {
    const mn_plugin_record *p = rec->plugin;
    MN_WATCHED(p->callee, "device_close", p->backend->device_close(device));
}

void mn_registry_close_devices(mn_registry *reg) {
    for (size_t i = reg->n_devices + reg->n_groups; i-- > 0;) {
        mn_device_state *s = &reg->state[i];
        if (s->open)
            close_device(&reg->devices[i], s->open);
        for (mn_loss *l = s->losses, *next; l; l = next) {
            next = l->next;
            mn_free(l);
        }
    }
}

/* ---- losing ---------------------------------------------------------------------------------- */

/* A text that stays: one that is there already, or a new one. */
static const char *keep_reason(mn_device_state *s, const char *why) {
    char text[400];
    const int n = snprintf(text, sizeof text, "lost: %s", why);
    if (n >= (int)sizeof text)
        text[mn_utf8_complete(text, sizeof text - 1)] = 0;
    for (const mn_loss *l = s->losses; l; l = l->next)
        if (!strcmp(l->text, text))
            return l->text;
    const size_t bytes = strlen(text) + 1;
    mn_loss *l = s->n_losses < MAX_LOSSES ? mn_alloc(1, sizeof *l + bytes) : NULL;
    if (!l)
        return "lost: its reason is in the log alone";
    memcpy(l->text, text, bytes);
    l->next = s->losses;
    s->losses = l;
    s->n_losses++;
    return l->text;
}

/* The lock is held; rec->lost is still what it was before. */
static void begin_delay(const mn_registry *reg, const mn_device_record *rec, uint64_t now) {
    mn_device_state *s = lost_state_of(reg, rec);
    const bool was_well = s->revived_ns && now - s->revived_ns > reg->most_delay_ns;
    const bool first = !s->delay_ns || (!rec->lost && was_well);
    const uint64_t next = first ? reg->first_delay_ns : s->delay_ns * 2;
    s->delay_ns = MN_MIN(next, reg->most_delay_ns);
    s->next_ns = now + s->delay_ns;
}

void mn_registry_quarantine(mn_registry *reg, const mn_device_record *rec, const char *why) {
    mn_device_state *s = lost_state_of(reg, rec);
    mn_device_record *d = &reg->devices[rec - reg->devices];
    pthread_mutex_lock(&reg->lock);
    if (d->usable) {
        d->reason = keep_reason(s, why);
        begin_delay(reg, d, mn_now_ns());
        d->lost = true;
        d->usable = false;
    }
    pthread_mutex_unlock(&reg->lock);
}

void mn_registry_device_release(mn_registry *reg, const mn_device_record *rec, mn_device *device) {
    if (!device)
        return;
    mn_device_state *s = lost_state_of(reg, rec);
    mn_device *last = NULL;
    pthread_mutex_lock(&reg->lock);
    s->users--;
    if (rec->lost && !s->users) {
        last = s->open;
        s->open = NULL;
        s->busy = true;
    }
    pthread_mutex_unlock(&reg->lock);
    if (!last)
        return;
    close_device(rec, last);
    pthread_mutex_lock(&reg->lock);
    s->busy = false;
    pthread_mutex_unlock(&reg->lock);
}

/* ---- coming back ----------------------------------------------------------------------------- */

/* Opens the device and runs its self-test; NULL = it is still lost, and why. */
static mn_device *open_again(const mn_device_record *rec, mn_error *why) {
    const mn_backend *b = rec->plugin->backend;
    mn_device *device = NULL;
    mn_status st = MN_OK;
    if (mn_device_call_open(rec, &device, why))
        return NULL;
    if (MN_HAS(mn_backend, b, self_test))
        MN_WATCHED(rec->plugin->callee, "self_test", st = b->self_test(device, why));
    if (!st)
        return device;
    close_device(rec, device);
    return NULL;
}

/* Whether this thread is the one that tries; *old: what is to be closed before, or NULL. */
static bool lost_claim(mn_registry *reg, const mn_device_record *rec, mn_device **old) {
    mn_device_state *s = lost_state_of(reg, rec);
    pthread_mutex_lock(&reg->lock);
    const bool mine = rec->lost && !s->busy && !s->users && mn_now_ns() >= s->next_ns;
    if (mine) {
        s->busy = true;
        *old = s->open;
        s->open = NULL;
    }
    pthread_mutex_unlock(&reg->lock);
    return mine;
}

void mn_registry_retry(mn_registry *reg, const mn_device_record *rec) {
    mn_device_state *s = lost_state_of(reg, rec);
    mn_device_record *d = &reg->devices[rec - reg->devices];
    mn_device *old = NULL;
    mn_error why = MN_ERROR_INIT;
    if (d->usable || !lost_claim(reg, d, &old))
        return;
    if (old)
        close_device(rec, old);
    mn_device *device = open_again(rec, &why);
    mn_fail_plain(&why);
    pthread_mutex_lock(&reg->lock);
    const uint64_t now = mn_now_ns();
    s->busy = false;
    s->open = device;
    if (device) {
        s->revived_ns = now;
        d->lost = false;
        d->usable = true;
        d->reason = "";
    } else
        begin_delay(reg, d, now);
    const double delay_s = (double)s->delay_ns * 1e-9;
    pthread_mutex_unlock(&reg->lock);
    if (device)
        mn_log(MN_LOG_WARN, "device %s was lost and is back", rec->name);
    else
        mn_log(MN_LOG_INFO, "device %s is still lost: %s; tried again in %.0f s", rec->name,
               why.msg[0] ? why.msg : "the plugin gave no reason", delay_s);
}

/* The lock is held. */
static int32_t seconds_left(const mn_registry *reg, const mn_device_record *rec) {
    const mn_device_state *s = lost_state_of(reg, rec);
    const uint64_t now = mn_now_ns();
    const uint64_t wait = rec->lost && s->next_ns > now ? s->next_ns - now : 0;
    return (int32_t)((wait + 999999999) / 1000000000);
}

int32_t mn_registry_retry_s(mn_registry *reg, const mn_device_record *rec) {
    pthread_mutex_lock(&reg->lock);
    const int32_t left = seconds_left(reg, rec);
    pthread_mutex_unlock(&reg->lock);
    return left;
}

void mn_registry_say_lost(mn_registry *reg, const mn_device_record *rec, char *out, size_t cap) {
    const mn_device_state *s = lost_state_of(reg, rec);
    pthread_mutex_lock(&reg->lock);
    const char *reason = rec->reason;
    const bool lost = rec->lost, in_use = s->users > 0;
    const int32_t left = seconds_left(reg, rec);
    pthread_mutex_unlock(&reg->lock);
    int n = 0;
    if (!lost)
        n = snprintf(out, cap, "%s", *reason ? reason : "it was lost a moment ago");
    else if (in_use)
        n = snprintf(out, cap, "%s; tried again when the sessions that used it are over", reason);
    else
        n = snprintf(out, cap, "%s; tried again in %d s at the earliest", reason, left);
    if (n >= (int)cap)
        out[mn_utf8_complete(out, cap - 1)] = 0;
}
