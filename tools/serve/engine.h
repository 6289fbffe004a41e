/* engine.h -- the engine process of the server: it opens plugins, model and session, and computes
 * what the front process asks for over a socket. */
#ifndef MINERVA_SERVE_ENGINE_H
#define MINERVA_SERVE_ENGINE_H
#include "app.h"

/* Runs until the other side of the socket fd closes, which ends the process at once. The exit code:
 * that of the command if the model cannot be opened, with the error printed. A crash writes the id
 * of its plugin to the pipe blame. */
int engine_main(int fd, int blame);
/* A number that two processes agree on if they have opened the same model: an engine that starts
 * again must not have another one than the front's tokeniser. */
uint64_t engine_stamp(const app *a);
#endif
