/* One line on stderr for a person, at most a few of each kind. */
#ifndef VGPU_LOG_H
#define VGPU_LOG_H

#include <stdatomic.h>

enum vgpu_level { VGPU_ERROR, VGPU_WARNING, VGPU_INFO };

/* A place that logs; it falls silent after VGPU_LOG_LIMIT lines. */
struct vgpu_log_site {
    _Atomic unsigned int lines;
};
#define VGPU_LOG_LIMIT 5u

void vgpu_log(struct vgpu_log_site* site, enum vgpu_level level, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

#define LOG(level, ...)                                                                                      \
    do {                                                                                                     \
        static struct vgpu_log_site site;                                                                    \
        vgpu_log(&site, level, __VA_ARGS__);                                                                 \
    } while (0)

#endif
