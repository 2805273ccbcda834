#include "log.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* LIBCUDA_LOG_LEVEL as HAMi reads it: errors always, warnings from 1, all else from 3. */
static enum vgpu_level loudest(void)
{
    const char* text = getenv("LIBCUDA_LOG_LEVEL");
    if (!text || *text < '0' || *text > '9')
        return VGPU_WARNING;
    return *text == '0' ? VGPU_ERROR : *text < '3' ? VGPU_WARNING : VGPU_INFO;
}

/* Where nobody reads stderr, a message of ours must not end the program: the signal is held back and taken.
 */
static void say(const char* line, size_t length)
{
    const struct timespec at_once = { 0, 0 };
    sigset_t broken;
    sigset_t pending;
    sigset_t before;
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    bool is_held = sigprocmask(SIG_BLOCK, &broken, &before) == 0;
    bool is_broken = write(STDERR_FILENO, line, length) < 0 && errno == EPIPE;
    if (is_broken && !sigismember(&pending, SIGPIPE))
        sigtimedwait(&broken, NULL, &at_once);
    if (is_held)
        sigprocmask(SIG_SETMASK, &before, NULL);
}

void vgpu_log(struct vgpu_log_site* site, enum vgpu_level level, const char* format, ...)
{
    int saved = errno;
    unsigned int before = atomic_load_explicit(&site->lines, memory_order_relaxed);
    if (before >= VGPU_LOG_LIMIT || level > loudest())
        return;
    before = atomic_fetch_add_explicit(&site->lines, 1, memory_order_relaxed);
    if (before >= VGPU_LOG_LIMIT)
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int prefix = snprintf(line, sizeof line, "vgpu[%d]: ", (int)getpid());
    int text = vsnprintf(line + prefix, sizeof line - (size_t)prefix - 1, format, arguments);
    va_end(arguments);
    size_t length = (size_t)prefix + (size_t)(text > 0 ? text : 0);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    say(line, length);
    errno = saved;
}
