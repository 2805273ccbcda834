/* Who a process is, beyond its PID. */
#ifndef VGPU_PROCESS_H
#define VGPU_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_identity {
    uint32_t pid;
    uint64_t start_time; /* field 22 of /proc/<pid>/stat; 0 when it cannot be read */
    uint64_t pid_namespace; /* 0 when it cannot be read */
};

struct vgpu_identity vgpu_identity(void);

/* Whether a process of our own PID namespace is certainly gone. */
bool vgpu_is_gone(uint32_t pid, uint64_t start_time);

/* Whether there is no process of this number; one that took it is not told from the one that had it. */
bool vgpu_is_missing(uint32_t pid);

#endif
