#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STATE 3
#define THREADS 20
#define START_TIME 22

/* A field of the text of /proc/<pid>/stat. The second may hold spaces and brackets; the last ")" ends it. */
static const char* field_of(const char* text, int number)
{
    const char* rest = strrchr(text, ')');
    for (int field = 2; rest && field < number; field++) {
        rest = strchr(rest, ' ');
        rest = rest ? rest + 1 : NULL;
    }
    return rest;
}

static uint64_t number_in(const char* text, int number)
{
    const char* field = field_of(text, number);
    return field ? strtoull(field, NULL, 10) : 0;
}

static bool read_stat(uint32_t pid, char text[1024])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, 1023);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Ended, but its parent does not care: it holds nothing any more. Its first thread alone ends like this too.
 */
static bool is_zombie(const char* text)
{
    const char* state = field_of(text, STATE);
    return state && (*state == 'Z' || *state == 'X') && number_in(text, THREADS) <= 1;
}

struct vgpu_identity vgpu_identity(void)
{
    struct stat found;
    struct vgpu_identity me = { .pid = (uint32_t)getpid() };
    char text[1024];
    me.start_time = read_stat(me.pid, text) ? number_in(text, START_TIME) : 0;
    if (stat("/proc/self/ns/pid", &found) == 0)
        me.pid_namespace = found.st_ino;
    return me;
}

bool vgpu_is_missing(uint32_t pid)
{
    return pid == 0 || pid > INT32_MAX || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

bool vgpu_is_gone(uint32_t pid, uint64_t start_time)
{
    if (vgpu_is_missing(pid))
        return true;
    char text[1024];
    if (!read_stat(pid, text))
        return false;
    uint64_t now = number_in(text, START_TIME);
    return is_zombie(text) || (start_time && now && now != start_time);
}
