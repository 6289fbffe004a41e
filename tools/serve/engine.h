/* engine.h -- the engine process of the server: it opens plugins, model and session, and computes
 * what the front process asks for over a socket. */
#ifndef MINERVA_SERVE_ENGINE_H
#define MINERVA_SERVE_ENGINE_H

/* Runs until the other side of the socket fd closes, which ends the process at once. The exit code:
 * that of the command if the model cannot be opened, with the error printed. */
int engine_main(int fd);
#endif
