/* What the targets of libFuzzer share: a broken promise ends the run, and what is logged is formatted always.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PROMISE(holds)                                                                                       \
    do {                                                                                                     \
        if (!(holds)) {                                                                                      \
            fprintf(stderr, "broken: %s\n", #holds);                                                         \
            __builtin_trap();                                                                                \
        }                                                                                                    \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/* In place of the library's, which falls silent after a few lines. */
void vgpu_log(struct vgpu_log_site* site, enum vgpu_level level, const char* format, ...)
{
    char line[512];
    va_list arguments;
    (void)site;
    (void)level;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
}

#endif
