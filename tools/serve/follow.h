/* follow.h -- minerva serve on a rank other than 0: no port, and an engine that follows rank 0's.
 */
#ifndef MINERVA_SERVE_FOLLOW_H
#define MINERVA_SERVE_FOLLOW_H
#include "app.h"

/* Until rank 0 ends in order, a signal, or an engine that cannot join; the exit code. Before any
 * runtime is made. */
int serve_follow(const app_flags *flags);
#endif
