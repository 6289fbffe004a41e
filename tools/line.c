/* line.c -- the line reader (line.h): waits for bytes and signals, sets up and restores the
 * terminal, and connects keys (line_keys.c), text (line_edit.c) and drawing (line_draw.c).
 *
 * The reader owns the bytes that were read and not used yet; main thread only. Lines of a pipe,
 * and of a terminal that cannot be drawn on, use the same buffer without the editor. The editor
 * is our own: Debian's libraries lack bracketed paste (libedit, libtecla) or have another
 * licence (readline). */
#include "line.h"
#include "app.h"
#include "codeset.h"
#include "line_edit.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ESCAPE_MS 100 /* maximum time between the bytes of one key's sequence */

struct line_reader {
    int terminal;     /* where lines are drawn, or -1 */
    int typed;        /* input is a terminal */
    int signals;      /* descriptor of the signals while a line is read, or -1 */
    mn_text raw, in;  /* incomplete bytes of another codeset; UTF-8 of later keys or lines */
    size_t taken;     /* bytes of in that are used */
    int ended, error; /* 1: the input has ended; errno of its error */
    struct termios before;
    line_view view;
    line_edit edit;
    line_history *history;
    size_t entry;   /* of the history that is shown; its count: none */
    mn_text unsent; /* what was typed when the history was entered */
    mn_text query;  /* of a search */
    int searching, pasting;
};

line_reader *line_open(void) {
    const char *term = getenv("TERM");
    line_reader *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->signals = -1;
    r->terminal = -1;
    r->typed = isatty(STDIN_FILENO);
    if (r->typed && term && *term && strcmp(term, "dumb") != 0) {
        if (isatty(STDERR_FILENO))
            r->terminal = STDERR_FILENO;
        else if (isatty(STDOUT_FILENO))
            r->terminal = STDOUT_FILENO;
    }
    return r;
}

void line_use_history(line_reader *r, line_history *history) {
    r->history = history;
}

int line_is_typed(const line_reader *r) {
    return r->typed;
}

int line_is_edited(const line_reader *r) {
    return r->terminal >= 0;
}

void line_close(line_reader *r) {
    if (!r)
        return;
    mn_text_free(&r->raw);
    mn_text_free(&r->in);
    mn_text_free(&r->unsent);
    mn_text_free(&r->query);
    edit_free(&r->edit);
    free(r->view.widths);
    free(r);
}

/* ---- bytes ----------------------------------------------------------------------------------- */
enum { BYTES = -1, NOTHING = -2, ENDED = -3 }; /* else the number of a signal */

/* Appends the bytes to in, converted to UTF-8; an incomplete character stays in raw. */
static void take_bytes(line_reader *r, const char *bytes, size_t n) {
    if (!r->typed || !codeset_is_other()) {
        mn_text_put(&r->in, bytes, n);
        return;
    }
    mn_text_put(&r->raw, bytes, n);
    if (!r->raw.failed)
        mn_text_remove(&r->raw, 0, codeset_decode(r->raw.ptr, r->raw.len, &r->in));
}

/* One read of standard input: BYTES, NOTHING or ENDED. */
static int line_read_bytes(line_reader *r) {
    char bytes[65536];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n > 0) {
        take_bytes(r, bytes, (size_t)n);
        return BYTES;
    }
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return NOTHING;
    if (n < 0 && !(r->typed && errno == EIO)) // EIO: the terminal hung up
        r->error = errno;
    r->ended = 1;
    return ENDED;
}

/* Waits for input or a signal. timeout: in ms; -1: none. BYTES, NOTHING, ENDED or a signal's
 * number. */
static int wait_input(line_reader *r, int timeout) {
    struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {r->signals, POLLIN, 0}};
    unsigned char number;
    if (r->ended)
        return ENDED;
    if (poll(fds, 2, timeout) <= 0)
        return NOTHING;
    if (fds[1].revents && read(r->signals, &number, 1) == 1)
        return number;
    return fds[0].revents ? line_read_bytes(r) : NOTHING;
}

static void forget_taken(line_reader *r) {
    mn_text_remove(&r->in, 0, r->taken);
    r->taken = 0;
}

/* ---- lines that are not edited --------------------------------------------------------------- */
/* *text: a copy of the n bytes with a NUL behind them, the caller's to free. */
static line_event hand_out(const char *bytes, size_t n, char **text, size_t *n_text) {
    *text = malloc(n + 1);
    *n_text = n;
    if (!*text)
        return LINE_NO_MEMORY;
    if (n)
        memcpy(*text, bytes, n);
    (*text)[n] = 0;
    return LINE_TEXT;
}

enum { GO_ON = -1 }; /* else a line_event */

/* The first line of the buffer, if it is complete; else GO_ON, or the event that ends the
 * reading. seen: bytes of it that were searched before. */
static int line_take_line(line_reader *r, size_t seen, char **text, size_t *n) {
    const char *begin = r->in.ptr, *stop = NULL;
    if (r->in.len > seen)
        stop = memchr(begin + seen, '\n', r->in.len - seen);
    if (!stop && r->in.failed)
        return LINE_NO_MEMORY;
    if (!stop && r->in.len > READ_MAX)
        return LINE_TOO_LONG;
    if (!stop && !r->ended)
        return GO_ON;
    if (!stop && (r->error || r->in.len == 0)) {
        errno = r->error;
        return r->error ? LINE_FAILED : LINE_END;
    }
    size_t length = stop ? (size_t)(stop - begin) : r->in.len;
    r->taken = length + (stop != NULL);
    if (length && begin[length - 1] == '\r')
        length--;
    line_event event = hand_out(begin, length, text, n);
    forget_taken(r);
    return event;
}

/* A line without the editor: from a pipe, or edited by the terminal's driver. */
static line_event plain_line(line_reader *r, const char *prompt, char **text, size_t *n) {
    if (r->typed && isatty(STDERR_FILENO))
        fputs(prompt, stderr);
    int event = line_take_line(r, 0, text, n);
    while (event == GO_ON) {
        const size_t seen = r->in.len;
        int what = wait_input(r, -1);
        if (what == SIGINT) {
            mn_text_clear(&r->in);
            fputc('\n', stderr); // after the ^C that the terminal prints
            return LINE_CLEARED;
        }
        if (what == SIGTERM || what == SIGHUP)
            signals_pass_on(what);
        event = line_take_line(r, seen, text, n);
    }
    return (line_event)event;
}

/* ---- the terminal ---------------------------------------------------------------------------- */
/* Writes out in the terminal's codeset, and frees it. Errors are ignored: the next read finds
 * them. */
static void line_send(line_reader *r, mn_text *out) {
    mn_text encoded = {0};
    const int encode = codeset_is_other();
    if (encode)
        codeset_encode(out->ptr, out->len, &encoded);
    const mn_text *b = encode ? &encoded : out;
    for (size_t at = 0; at < b->len;) {
        ssize_t wrote = write(r->terminal, b->ptr + at, b->len - at);
        if (wrote < 0 && errno != EINTR)
            break;
        at += wrote > 0 ? (size_t)wrote : 0;
    }
    mn_text_free(&encoded);
    mn_text_free(out);
}

static void line_measure(line_reader *r) {
    struct winsize size = {0};
    if (ioctl(r->terminal, TIOCGWINSZ, &size) != 0)
        size = (struct winsize){0};
    line_resize(&r->view, size.ws_col, size.ws_row);
}

/* Sets the terminal to single keys without echo, Ctrl-C and Ctrl-Z as keys; output is unchanged,
 * and typed bytes are kept (TCSADRAIN). 0: the terminal cannot be set. */
static int line_enter(line_reader *r) {
    mn_text out = {0};
    if (tcgetattr(STDIN_FILENO, &r->before) != 0)
        return 0;
    struct termios keys = r->before;
    keys.c_iflag &= ~(tcflag_t)(BRKINT | ICRNL | IGNCR | INLCR | INPCK | ISTRIP | IXON);
    keys.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) != 0)
        return 0;
    line_measure(r);
    mn_text_puts(&out, "\033[?2004h"); // bracketed paste
    line_send(r, &out);
    return 1;
}

/* Restores the terminal. */
static void tools_line_leave(line_reader *r) {
    mn_text out = {0};
    line_leave(&r->view, &out);
    mn_text_puts(&out, "\033[?2004l");
    line_send(r, &out);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &r->before);
}

/* Draws prompt and text. The prompt of a search shows the query if it is short enough. */
static void tools_line_draw(line_reader *r, const char *prompt) {
    mn_text out = {0}, search = {0};
    if (r->searching) {
        const int fits = r->query.len < (size_t)r->view.columns / 2;
        mn_text_puts(&search, "(search");
        if (fits && r->query.len) {
            mn_text_puts(&search, " ");
            mn_text_put(&search, r->query.ptr, r->query.len);
        }
        mn_text_puts(&search, ") ");
        prompt = search.ptr ? search.ptr : "";
    }
    line_draw(&r->view, prompt, !r->searching && has_color(stderr), &r->edit, &out);
    line_send(r, &out);
    mn_text_free(&search);
}

/* Restores the terminal for a signal that stops or ends the program. */
static void line_pass_on(line_reader *r, int number) {
    tools_line_leave(r);
    signals_pass_on(number);
    line_enter(r);
}

/* ---- history --------------------------------------------------------------------------------- */
/* Replaces the text by entry i; i = count: by the text that was typed before (unsent). */
static void show_entry(line_reader *r, size_t i) {
    const size_t count = history_count(r->history);
    if (r->entry == count) {
        mn_text_clear(&r->unsent);
        mn_text_put(&r->unsent, r->edit.text.ptr, r->edit.text.len);
    }
    r->entry = i;
    const char *text = i < count ? history_entry(r->history, i) : r->unsent.ptr;
    edit_replace(&r->edit, text, text ? strlen(text) : 0);
}

/* Up and down between entries. 1: the key is one of these. */
static int history_key(line_reader *r, int kind) {
    const int up = kind == KEY_UP || kind == CTRL('P');
    const int down = kind == KEY_DOWN || kind == CTRL('N');
    if (!r->history || (!up && !down))
        return 0;
    if (up && r->entry > 0)
        show_entry(r, r->entry - 1);
    if (down && r->entry < history_count(r->history))
        show_entry(r, r->entry + 1);
    return 1;
}

/* Shows the newest entry before the given one that contains the query. */
static void search_from(line_reader *r, size_t before) {
    while (r->query.len && before > 0) {
        before--;
        if (strstr(history_entry(r->history, before), r->query.ptr)) {
            show_entry(r, before);
            return;
        }
    }
}

/* 1: the key belongs to the search; 0: it ended the search and has its usual effect. */
static int search_key(line_reader *r, const line_key *key) {
    if (key->kind == KEY_TEXT) {
        mn_text_put(&r->query, key->text, key->n);
        search_from(r, r->entry < history_count(r->history) ? r->entry + 1 : r->entry);
        return 1;
    }
    if (key->kind == CTRL('R')) {
        search_from(r, r->entry);
        return 1;
    }
    if (key->kind == KEY_BACKSPACE || key->kind == CTRL('H')) {
        while (r->query.len && (r->query.ptr[r->query.len - 1] & 0xC0) == 0x80)
            r->query.len--;
        mn_text_remove(&r->query, r->query.len ? r->query.len - 1 : 0, r->query.len);
        return 1;
    }
    r->searching = 0;
    if (key->kind != CTRL('G') && key->kind != KEY_NONE)
        return 0;
    show_entry(r, history_count(r->history));
    return 1;
}

/* ---- editing --------------------------------------------------------------------------------- */
/* Control characters that end the line, or act on the terminal. Ctrl-D ends an empty line only. */
static int control_key(line_reader *r, int kind) {
    mn_text out = {0};
    switch (kind) {
    case CTRL('M'):
    case CTRL('J'):
        return LINE_TEXT;
    case CTRL('C'):
        return LINE_CLEARED;
    case CTRL('D'):
        return r->edit.text.len ? GO_ON : LINE_END;
    case CTRL('Z'):
        line_pass_on(r, SIGTSTP);
        break;
    case CTRL('\\'):
        line_pass_on(r, SIGQUIT);
        break;
    case CTRL('L'):
        mn_text_puts(&out, "\033[H\033[2J");
        r->view.at_row = 0;
        line_send(r, &out);
        break;
    case CTRL('R'):
        mn_text_clear(&r->query);
        r->searching = r->history != NULL;
        break;
    default:
        break;
    }
    return GO_ON;
}

static int do_key(line_reader *r, const line_key *key) {
    if (key->kind == KEY_PASTE_BEGIN || key->kind == KEY_PASTE_END) {
        r->pasting = key->kind == KEY_PASTE_BEGIN;
        return GO_ON;
    }
    if (r->searching && !r->pasting && search_key(r, key))
        return GO_ON;
    int event = key->kind < 32 ? control_key(r, key->kind) : GO_ON;
    if (event == GO_ON && !edit_key(&r->edit, key))
        history_key(r, key->kind);
    return event;
}

/* Executes all keys that have arrived. no_more: see line_key_of. GO_ON or a line_event. */
static int do_keys(line_reader *r, int no_more) {
    int event = GO_ON;
    while (event == GO_ON && r->taken < r->in.len) {
        line_key key;
        size_t used =
            line_key_of(r->in.ptr + r->taken, r->in.len - r->taken, r->pasting, no_more, &key);
        if (used == 0)
            break;
        r->taken += used;
        event = do_key(r, &key);
    }
    forget_taken(r);
    if (r->in.failed || r->edit.text.failed)
        return LINE_NO_MEMORY;
    return r->edit.text.len > READ_MAX ? LINE_TOO_LONG : event;
}

static int do_signal(line_reader *r, int number) {
    if (number == SIGINT)
        return LINE_CLEARED;
    if (number == SIGWINCH)
        line_measure(r);
    if (number == SIGCONT) { // the terminal may be in another state now
        tcsetattr(STDIN_FILENO, TCSADRAIN, &r->before);
        r->view.at_row = 0;
        line_enter(r);
    }
    if (number == SIGTERM || number == SIGHUP)
        line_pass_on(r, number);
    return GO_ON;
}

/* Keys and signals until an event. Draws only when no more input waits, so that a paste is drawn
 * once. */
static int edit_loop(line_reader *r, const char *prompt) {
    int event = do_keys(r, 0);
    while (event == GO_ON) {
        int what = wait_input(r, r->pasting ? ESCAPE_MS : 0);
        if (what == NOTHING) {
            tools_line_draw(r, prompt);
            what = wait_input(r, r->in.len ? ESCAPE_MS : -1);
            if (what == NOTHING)
                event = do_keys(r, 1);
        }
        if (what == BYTES)
            event = do_keys(r, 0);
        else if (what == ENDED)
            event = LINE_END;
        else if (what > 0)
            event = do_signal(r, what);
    }
    return event;
}

/* A line with the editor. */
static line_event edit_line(line_reader *r, const char *prompt, char **text, size_t *n) {
    edit_replace(&r->edit, "", 0);
    r->searching = 0;
    r->pasting = 0;
    r->entry = r->history ? history_count(r->history) : 0;
    if (!line_enter(r))
        return plain_line(r, prompt, text, n);
    int event = edit_loop(r, prompt);
    r->edit.at = r->edit.text.len; // the end of the text stays on the screen
    r->searching = 0;
    tools_line_draw(r, prompt);
    tools_line_leave(r);
    if (event != LINE_TEXT)
        return (line_event)event;
    if (r->history)
        history_add(r->history, r->edit.text.ptr, r->edit.text.len);
    return hand_out(r->edit.text.ptr, r->edit.text.len, text, n);
}

line_event line_read(line_reader *r, const char *prompt, char **text, size_t *n) {
    r->signals = r->typed ? signals_to_pipe() : -1;
    const int edited = r->terminal >= 0;
    line_event event = edited ? edit_line(r, prompt, text, n) : plain_line(r, prompt, text, n);
    if (r->typed)
        signals_restore();
    return event;
}
