#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Field 22 of the text of /proc/<pid>/stat. The second field may hold spaces and brackets; the last ")" ends
 * it. */
static uint64_t start_time_in(const char* text)
{
    const char* rest = strrchr(text, ')');
    for (int field = 2; rest && field < 22; field++) {
        rest = strchr(rest, ' ');
        rest = rest ? rest + 1 : NULL;
    }
    return rest ? strtoull(rest, NULL, 10) : 0;
}

static uint64_t start_time_of(uint32_t pid)
{
    char path[32];
    char text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    return start_time_in(text);
}

struct vgpu_identity vgpu_identity(void)
{
    struct stat found;
    struct vgpu_identity me = { .pid = (uint32_t)getpid() };
    me.start_time = start_time_of(me.pid);
    if (stat("/proc/self/ns/pid", &found) == 0)
        me.pid_namespace = found.st_ino;
    return me;
}

bool vgpu_is_gone(uint32_t pid, uint64_t start_time)
{
    if (pid == 0 || pid > INT32_MAX)
        return true;
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return true;
    uint64_t now = start_time_of(pid);
    return start_time && now && now != start_time;
}
